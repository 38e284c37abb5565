"""Mainspring for developing and testing what uses it: a server or an instance in virtual time, on a store in memory.

    clock      time that can be moved ahead
    passage    from one instant to a later one, with everything that is due in between
    outgoing   calls that carry the machine's time where receivers compare it with their own
    emulation  these three put together, for one instance
    messages   the clock on the wire
    routes     the clock over HTTP
    answers    what time it is, in every answer
    remote     the clock of an emulator that runs elsewhere
    serve      `mainspring dev serve`

No server of `mainspring serve` knows any of this.
"""
