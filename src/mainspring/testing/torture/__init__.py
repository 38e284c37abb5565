"""The crash test: many clients, a receiver that counts, a server that is killed again and again, and a checker.

    journal     what everybody writes down, as JSON lines
    receiver    the target of all timers: logs an arrival, then answers
    process     a real server process on a data directory
    workload    the clients, each with timers of its own
    run         kills and restarts the server meanwhile, then reads what is left in the store
    checker     decides from the journal alone whether every promise was kept

Killing a process does not test power loss: what the kernel has, it keeps.
"""
