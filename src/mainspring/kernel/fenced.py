"""Begin and finish as the engine asks for them: a verdict for each item, whatever the store does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.kernel.agenda import Agenda
from mainspring.store import Begin, Finish, FinishesWithRecords, Store, Verdict

Item = TypeVar("Item", Begin, Finish)
Answer = TypeVar("Answer")

COMPLAINT_SECONDS: Final = 5.0
"""The pause between two lines in the log about the same trouble."""


async def contained(answer: Awaitable[Answer]) -> Answer:
    """No error in a store may end the engine: if it fails in an unforeseen way, it is unavailable."""
    try:
        return await answer
    except StoreUnavailable:
        raise
    except Exception as error:
        telemetry.exception("the store failed in an unforeseen way")
        raise StoreUnavailable("an unforeseen error") from error


class FencedWrites:
    def __init__(self, *, store: Store, clock: Clock, agenda: Agenda, deposed: Callable[[set[int]], None]) -> None:
        """`deposed` is called with shards that have a newer owner."""
        self._store = store
        self._clock = clock
        self._agenda = agenda
        self._deposed = deposed
        self._complain_at: dict[str, float] = {}
        self.takes_records = isinstance(store, FinishesWithRecords)

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        return await self._ask(self._store.begin, items, "attempts cannot be begun")

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        return await self._ask(self._store.finish, items, "outcomes wait for the store")

    async def _ask(
        self,
        verb: Callable[[Sequence[Item]], Coroutine[Any, Any, list[Verdict]]],
        items: Sequence[Item],
        trouble: str,
        *,
        is_repeat: bool = False,
    ) -> list[Verdict]:
        """No error in a store may end the engine, and what is wrong with one row must not affect others.

        What failed in an unforeseen way is tried again, in halves, and a single row twice. It may have been done all
        the same: what is stale then may be so because of that, and nobody knows.
        """
        if not items:
            return []
        try:
            verdicts = await verb(items)
            if is_repeat:
                verdicts = [Verdict.UNAVAILABLE if verdict is Verdict.STALE else verdict for verdict in verdicts]
            if Verdict.UNAVAILABLE in verdicts:
                self._complain(trouble, "a part of the store", verdicts.count(Verdict.UNAVAILABLE))
            return verdicts
        except StoreUnavailable as error:
            self._complain(trouble, error.detail, len(items))
            return [Verdict.UNAVAILABLE] * len(items)
        except Exception:  # noqa: BLE001 - see above
            telemetry.exception("the store failed in an unforeseen way")
            if is_repeat and len(items) == 1:
                return [Verdict.REFUSED]
            half: int = (len(items) + 1) // 2
            first = await self._ask(verb, items[:half], trouble, is_repeat=True)
            return first + await self._ask(verb, items[half:], trouble, is_repeat=True)

    def _complain(self, trouble: str, reason: str, count: int) -> None:
        now = self._clock.monotonic()
        if now >= self._complain_at.get(trouble, 0.0):
            self._complain_at[trouble] = now + COMPLAINT_SECONDS
            telemetry.warning(trouble, reason=reason, count=count)

    def is_deposed(self, shard_id: int, fence: int) -> bool:
        """Whether a fence was refused because of another owner's. False if that is our own: lost, and claimed again."""
        shard = self._agenda.shards.get(shard_id)
        return shard is None or shard.fence == fence

    def note_deposed(self, shard_ids: set[int]) -> None:
        """What has already been given up is no news; it may be about to be claimed again."""
        known = shard_ids & self._agenda.shards.keys()
        if known:
            self._deposed(known)
