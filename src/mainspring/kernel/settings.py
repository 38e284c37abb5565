"""What an engine can be told about its bounds."""

from __future__ import annotations

from msgspec import Struct


class EngineSettings(Struct, frozen=True, kw_only=True):
    """The bounds of an engine; see `Config` for their meaning."""

    renew_seconds: float = 2.0
    look_seconds: float = 1.0
    drain_seconds: float = 10.0
    in_flight_limit: int = 1024
    window_limit: int = 8192
    window_bytes: int = 16_777_216
    circuit_failures: int = 20
    circuit_seconds: float = 5.0
    page_size: int = 500
    idle_wake_seconds: float = 1.0
    """How long the reader sleeps at most. Waking costs no query; it only looks at the clock."""
    store_retry_seconds: float = 0.5
