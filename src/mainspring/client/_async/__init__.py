"""The client for programs with an event loop. `_sync` is generated from it by tools/generate_sync.py.

client, connection  what programs open; how a request is sent, and sent again
timers, jobs, fetches, keys, namespaces  the services
"""
