"""What a hostile world does to a server, in bounded pieces: each attack lasts for a given time and ends what it began.

    listener     peers without a token, at the HTTP listener
    receivers    hosts that timers and fetches call: they hang, they lie, they never stop
    tenants      whoever has a token and asks for far too much
    bulk         what is allowed piece by piece, in the largest sizes
    attack       what an attack is
    catalogue    all of them, by name
    alone        one of them in a process of its own, so that it takes no time from those who watch

    witness      a good client beside them: how long it waits, and how much memory the server takes meanwhile
    punctuality  timers and fetches to a healthy host: how late they arrive
    verdict      what may become of all that, and what did
    trial        a server of its own for each attack, the witnesses, and the way back

`make attack` runs them all and prints a table. Loopback only, and Linux only: it looks into /proc.
"""
