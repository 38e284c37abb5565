"""What the protocol is told: its settings, and how this program waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from mainspring.errors import ConfigError
from mainspring.idempotency.entries import Entry

T = TypeVar("T")


class Settings(Struct, frozen=True, kw_only=True):
    """What the parameters of a processor become."""

    scope: str
    ttl_seconds: float
    lease_seconds: float
    wait_seconds: float
    safe_to_repeat: bool

    def __post_init__(self) -> None:
        for name, least in (("ttl_seconds", 1), ("lease_seconds", 0.1), ("wait_seconds", 0)):
            seconds = getattr(self, name)
            if not least <= seconds <= 3.2e9:
                raise ConfigError(f"Expected {name} to be at least {least}, got {seconds}")

    @property
    def ttl_ms(self) -> int:
        return int(self.ttl_seconds * 1000)

    @property
    def lease_ms(self) -> int:
        return int(self.lease_seconds * 1000)


class Flight:
    """The callers of one key in this process: one of them is at the store, the others wait for what it brings.

    A run that raised ends the flight: those who waited for it get its exception, and later callers begin another.
    """

    __slots__ = ("as_of", "failed", "failure", "outcome", "running")

    def __init__(self) -> None:
        self.outcome: Entry | None = None
        self.as_of = 0.0
        """When the outcome was looked for, or recorded. Later callers look again: it may be forgotten by then."""
        self.failure: Exception | None = None
        self.running = ""
        """The fingerprint of the payload that work is being done for right now."""
        self.failed = ""
        """The fingerprint of the payload whose run raised."""


class Busy(Exception):
    """The turn did not come in time."""

    def __init__(self, fingerprint: str) -> None:
        super().__init__()
        self.fingerprint = fingerprint
        """Of the payload that work is being done for meanwhile; empty if there is none."""


class Circular(Exception):
    """The turn is held by the work that asks for it."""


HELD: Final[ContextVar[tuple[object, ...]]] = ContextVar("mainspring_idempotency_held", default=())
"""The turns whose work is running in this thread or task, or has started the task that is running."""


class Model(Protocol):
    """How this program waits. `sync_processor` has the one for threads, `loops` the one for event loops."""

    def turn(self, address: str, seconds: float) -> AbstractAsyncContextManager[Flight]:
        """The turn to ask the store for this key. Raises `Busy` if it does not come in time, or `Circular`."""
        ...

    def beating(
        self, renew: Callable[[], Awaitable[bool]], every_seconds: float
    ) -> AbstractAsyncContextManager[object]:
        """Call `renew` again and again until it says no, or until the block ends and the last call has ended."""
        ...

    def keep_trying(self, step: Callable[[], Awaitable[bool]], every_seconds: float) -> None:
        """Call `step` again and again, in the background, until it says no."""
        ...

    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result. It runs to its end even if the caller is cancelled meanwhile, who hears of that afterwards."""
        ...

    async def call(self, work: Callable[..., Any], *arguments: object) -> Any:
        """What `work` returns, or the result of awaiting that."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    @property
    def is_waiting(self) -> bool:
        """Whether work runs on an event loop, where it awaits."""
        ...

    @property
    def monotonic(self) -> Callable[[], float]:
        """The clock of waiting."""
        ...

    @property
    def entropy(self) -> Callable[[int], bytes]:
        """This many random bytes: tokens are made of them."""
        ...
