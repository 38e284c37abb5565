"""The client for programs without an event loop, generated from `_async` by tools/generate_sync.py.

client, connection  what programs open; how a request is sent, and sent again
timers, jobs, fetches, keys, namespaces  the services
"""
