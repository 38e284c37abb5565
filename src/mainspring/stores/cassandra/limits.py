"""How much one write may hold.

A write above the servers' limit is worse than refused: it is accepted as the partition's next write, can never be
carried out, and whoever comes after it tries in vain to complete it first. So nothing near the limit is sent.
"""

from __future__ import annotations

import re
from typing import Final

from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.stores.cassandra.connection import Connection

DEFAULT_BYTES: Final = 16 * 1024 * 1024
"""Half a segment of the commit log, unless somebody has changed that."""
_UNITS: Final = {"": 1024, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
"""Without a unit it is the older setting, which counts kilobytes."""
_SIZE: Final = re.compile(r"(\d+)(|B|KiB|MiB|GiB)")


def largest_row(connection: Connection) -> int:
    """Half of what the server takes in one write, because it takes more than the values. Blocks."""
    try:
        rows = connection.run(
            "SELECT value FROM system_views.settings WHERE name IN ('max_mutation_size', 'max_mutation_size_in_kb')"
        )
    except (StoreUnavailable, ConfigError):  # Scylla and older versions have no such table, and rights may be missing
        rows = []
    sizes = [size for (value,) in rows if (size := _SIZE.fullmatch(str(value)))]
    return min((int(size[1]) * _UNITS[size[2]] for size in sizes), default=DEFAULT_BYTES) // 2
