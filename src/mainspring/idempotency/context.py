"""What work may ask about the claim under which it runs.

    claim = current_claim()
    if not claim.still_held():          # `await claim.astill_held()` on an event loop
        raise UnknownOutcome("frozen for too long")
    bank.charge(order, fence=claim.attempt)

A lease says how long others wait for a holder; it does not stop one. Work that was frozen for longer, by a debugger, a
suspended machine or a long pause of its process, goes on where it was, while somebody else may have taken the claim
over. Its result is refused in the end, but what it does until then happens. So it asks before what cannot be undone,
and gives the other side a number that grows with each holder, which refuses whoever comes with a smaller one.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.idempotency.holder import Claim


class CurrentClaim:
    """The claim of the work that is running in this thread or task."""

    __slots__ = ("_claim", "_is_waiting")

    def __init__(self, claim: Claim, *, is_waiting: bool) -> None:
        self._claim = claim
        self._is_waiting = is_waiting

    @property
    def key(self) -> str:
        return self._claim.identity.key

    @property
    def token(self) -> str:
        """Random text: no other run of this key, or of any other, has the same."""
        return self._claim.header.token

    @property
    def attempt(self) -> int:
        """Counts the holders of the key since it was first claimed, from 1: whoever took over has a greater one."""
        return self._claim.header.attempt

    def still_held(self) -> bool:
        """Ask the store whether the claim is still ours. False also if the store cannot be asked."""
        from mainspring.idempotency.sync_processor import run  # noqa: PLC0415  (few ask)

        if self._is_waiting:
            raise InvalidInput("Expected `await astill_held()` in work on an event loop, got still_held()")
        return run(self._claim.still_held())

    async def astill_held(self) -> bool:
        """The same, in work on an event loop."""
        if not self._is_waiting:
            raise InvalidInput("Expected still_held() in work in threads, got `await astill_held()`")
        return await self._claim.still_held()


CURRENT: Final[ContextVar[CurrentClaim | None]] = ContextVar("mainspring_idempotency_claim", default=None)


def current_claim() -> CurrentClaim:
    """The claim under which this code runs. Refused outside of such work, and in the caller's own transaction."""
    claim = CURRENT.get()
    if claim is None:
        raise InvalidInput(
            "Expected to be called by work that runs under a claim, got a call from elsewhere, or from work in a "
            "transaction, which is claim enough"
        )
    return claim
