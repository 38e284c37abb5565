"""An insurance broker's submissions: from a queue, through five stages, into a database; each once.

    submission   what arrives; validate and triage
    similarity   whether two companies are one
    register     the enrichment API: a client with a circuit breaker
    register_server   a local stand-in for that API, which counts and charges
    database     where submissions end, in SQLite
    pipeline     the five stages in order
    application  the queue in front, and idempotency around it

Run it from the directory above: `python -m submissions --help`.
"""
