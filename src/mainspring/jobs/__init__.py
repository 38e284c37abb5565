"""Jobs: calls on a calendar, every instant of which is accounted for.

The rooms that every service has:

    messages       what is said about jobs over the wire
    arguments      Python keywords → message
    checks         what the types cannot say about a job
    record         a job as the registry keeps it, understood or broken
    rows           the timer rows of clocks and of runs                        pure
    clock_carrier  the engine's carrier of clock rows: plans what is due
    run_carrier    the engine's carrier of run rows: makes the calls
    service        what users ask
    views          stored → shown
    program        `ms.jobs`, and functions on a calendar; `handlers` are these functions as targets
    assembly       puts all of it together for one instance

and those that only jobs have:

    calendar/      from the text of a schedule to instants                     pure
    plan           what becomes of instants: run or skipped                    pure
    clock_state    from the state of a clock to runs and skipped ranges        pure
    overlap        whether a run is to go, and what about the one before       pure
    difference     whether a job is as somebody wants it                       pure
    webhook        what the receiver of a run gets                             pure
    foreign        a record as other programs write it, and its `lastRun`      pure
    registry       reads and writes definitions
    row_store      reads and writes the rows of clocks and runs
    ledger         what became of every instant; `runs` reads it in pages, `ledgers` those of many jobs as one
    queue          one run after another
    endings        how a run ends
    backfill       runs afterwards
    rerun          runs once more
    last_runs      tells other programs what was run, in the record
    reconciler     keeps clocks in step with the registry, under a lock

What is pure neither waits nor reads a clock.
"""
