"""HTTP: one table of routes, one file per resource, errors as problems, OpenAPI from the types. No framework.

The table, and what it leads to:

    routes          what a route is
    app             from a request to its route, and from the answer or error to a response
    exchange        a request and the way of its answer, whoever has received it
    timers, jobs, fetches, keys, namespaces  the services
    instances, shards, status                for whoever runs the server
    internal        what instances say to each other
    tokens          who is let in
    request_id      under which a request is answered and logged; `access_log` has a line for each
    large_answers   answers that may be megabytes; `pages` has the places for them
    openapi         the description, made from routes and types; `field_meanings` has its words, `docs` shows it

and the listener:

    listener        the socket, from open to drained
    protocol        one connection: HTTP/1.1 with bounds
    received        one request on it
    head_checks     what is wrong with the head of a request
    flow_control    reads little at once, writes to whoever takes it
    peers           who may be connected, and who gives way; `limits` says how much each may take
    stranger_queue  strangers that keep asking go one after another
    refusals        those that the listener writes itself
    asgi            other applications behind it, and our routes behind other servers
"""
