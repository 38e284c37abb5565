"""The client for programs with an event loop. `_sync` is generated from it by tools/generate_sync.py."""
