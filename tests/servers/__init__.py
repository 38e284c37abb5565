"""Real database servers for the tests, as plain processes on loopback.

By hand: `python -m tests.servers start postgresql`. In tests: the fixtures of `tests.servers.fixtures`.
"""
