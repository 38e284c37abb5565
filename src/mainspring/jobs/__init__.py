"""Jobs: calls on a calendar, every instant of which is accounted for.

    schedule   when an expression matches, in local time        pure
    cron       reads expressions                                pure
    zone       time zones as pieces with one offset             pure
    calendar   instants of a schedule in a zone, and DST        pure
    planning   what becomes of instants: launched or skipped    pure

    definition    what the registry says, understood or broken
    registry      reads and writes definitions
    accounting    from the state of a clock to launches and skipped ranges    pure
    ticking       the carrier of clock rows
    ledger        what became of every instant
    rows          the rows of clocks and launches in the engine
    judging       whether a launch is to go, and what about the one before    pure
    launching     the carrier of launch rows; with queueing, settling, request
    reconciling   keeps clocks equal to the registry, under a lock
    service       what users ask; with views, reading, backfilling
    scheduling    puts all of it together

What is pure neither waits nor reads a clock.
"""
