"""Runs at the start of every Python process that has this directory on its path. PLANTED names the bug."""

import os
import random
from typing import Any


def forget_creates() -> None:
    """One create in ten is acknowledged, and not written."""
    from mainspring.timers.service import TimerService  # noqa: PLC0415 - most processes need it later, or never

    put = TimerService._put_new

    async def forgetful(self: Any, timers: Any, places: Any = None) -> Any:
        return timers if random.random() < 0.1 else await put(self, timers, places)

    TimerService._put_new = forgetful  # type: ignore[method-assign]


def keep_deleted() -> None:
    """Every second delete is acknowledged, and not written."""
    from mainspring.timers.messages import DeletedView  # noqa: PLC0415
    from mainspring.timers.service import TimerService  # noqa: PLC0415
    from mainspring.timers.views import view_of  # noqa: PLC0415

    delete = TimerService.delete

    async def keeping(self: Any, request: Any) -> Any:
        if random.random() < 0.5:
            return await delete(self, request)
        return DeletedView(timer=view_of(await self._find(request.namespace, request.timer_id), None))

    TimerService.delete = keeping  # type: ignore[method-assign]


def repeat_what_may_not_be() -> None:
    """A successor sends at-most-once timers again."""
    from mainspring.timers import carrier, decision  # noqa: PLC0415

    lost = decision.lost

    def careless(timer: Any, *args: Any, **kwargs: Any) -> Any:
        from msgspec.structs import replace  # noqa: PLC0415

        from mainspring.model import Delivery  # noqa: PLC0415

        again = replace(timer, detail=replace(timer.detail, delivery=Delivery.AT_LEAST_ONCE))
        return lost(again, *args, **kwargs)

    decision.lost = careless
    if hasattr(carrier, "lost"):
        carrier.lost = careless


if "PLANTED" in os.environ:
    globals()[os.environ["PLANTED"]]()
