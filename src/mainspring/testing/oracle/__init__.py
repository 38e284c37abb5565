"""Decides from the journal of a finished history whether the promises were kept. Pure: nothing runs, nothing waits.

    journal, parts  what is written down while a history happens
    history, world  a journal sorted and joined, and what else the rules need to know
    judge           all rules, and the verdict

The rules:

    kept            T1: what was acknowledged is kept
    calls           T3 to T6: what receivers see
    bounds          B, T7: limits hold, and nobody waits for somebody else's destination
    attempts        H, U: the history of attempts
    ownership       F: one owner at a time
    liveness        Live: after healing, everything is done in time
    fetches         P: one call per fetch, one end
    jobs, runs      C: every instant of a job is accounted for; `reigns` says by which definition, `instants` finds
                    them by brute force
    idempotency     I: work is done once per key, and a lock has one holder

    timeline        a journal for people
"""
