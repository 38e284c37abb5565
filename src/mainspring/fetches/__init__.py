"""Fetches: an outbound call that is made at most once and whose answer is brought back, whatever crashes meanwhile.

The rooms that every service has:

    messages    what is said about fetches over the wire
    arguments   Python keywords → message
    checks      what the types cannot say about a request
    record      a fetch as it is stored, and the states that it goes through      pure
    rows        its timer row: when somebody has to look at the record           pure
    carrier     the engine's carrier of these rows
    service     what users ask
    views       stored → shown
    program     `ms.fetches`
    assembly    puts all of it together for one instance

and those that only fetches have:

    registry    the records and their rows: the only writer of both
    outcome     what may become of a fetch                                       pure
    call        one request, and the redirects that it follows
    executor    makes the calls, each once; `places` shares them out by host, `memory` bounds their bytes
    pools       executors that are processes of their own; `watcher` notices those that are gone
    results     brings results to their origins; `local_origins` are those in this program,
                `left_results` are for those in others
    work_limit  bounds how much work of megabytes is under way at once
    sweeper     ends what nobody has begun in time
    activity    what an instance remembers without asking the store
    failures    what the log says of those that did not end well
    errors      why a fetch brought no response
"""
