"""Real processes under a random load, while they are killed, paused, cut off and their database restarted.

    world       the limits and destinations of a run, drawn from its seed
    members     the servers of a run, each back at its address some time after it died
    process     a real server process on a data directory
    starvation  whether the machine lets a process run
    relay       stands between an instance and its database, and can cut or hold the line
    hosts       hundreds of destinations, each with a loopback address of its own
    foreign     timers that are created in somebody else's transactions
    left        what is in the store when everything has come to rest
    run         the users, the blows, the healing
    figures     what there is to say about a run

What users ask and how destinations behave is drawn by `testing.simulation`, and `testing.oracle` judges the journal: a
simulation and a torture share both. Killing a process does not test power loss: what the kernel has, it keeps.
"""
