"""The client for programs without an event loop, generated from `_async` by tools/generate_sync.py."""
