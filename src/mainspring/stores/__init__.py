"""Which database stands behind a store URL.

Adapters are imported when they are asked for, so that starting a program costs only the one it uses.
"""

from __future__ import annotations

from mainspring.clock import Clock
from mainspring.errors import ConfigError
from mainspring.store import Store


def store_from_url(url: str, *, clock: Clock) -> Store:
    """The store that `url` names, not yet opened: `sqlite:///relative.db`, `sqlite:////absolute.db` or `memory://`."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        path = rest.removeprefix("/")
        if not rest.startswith("/") or not path:
            raise ConfigError(f"Expected sqlite:///path of a database file, got {url!r}")
        from mainspring.stores.sqlite import SQLiteStore  # noqa: PLC0415  (see the module docstring)

        return SQLiteStore(path)
    if separator and scheme == "memory":
        if rest.strip("/"):
            raise ConfigError(f"Expected memory:// without anything behind it, got {url!r}")
        from mainspring.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore(clock)
    raise ConfigError(f"Expected a store URL that starts with sqlite:/// or memory://, got {url!r}")
