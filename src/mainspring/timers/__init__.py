"""Timers: one call at a given time, repeated until it is answered, parked or given up.

The rooms that every service has:

    messages      what is said about timers over the wire
    arguments     Python keywords → message
    checks        what the types cannot say about a request
    record        what a request makes of a timer; the record of a timer is its row     pure
    carrier       the engine's carrier: calls a URL, or a function of this program
    service       what users ask
    views         stored → shown
    program       `ms.timers`
    assembly      puts all of it together for one instance

and those that only timers have:

    decision      what an answer means                                                  pure
    destinations  the lanes of URLs
    handlers      functions of this program as receivers
"""
