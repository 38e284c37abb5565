"""The lanes of URLs: one for each host and port in a namespace; the lanes of one site count together."""

from __future__ import annotations

from typing import Final

from mainspring.delivery.guard import Guard
from mainspring.errors import InvalidInput, UnsafeTarget
from mainspring.kernel.carrier import Lane
from mainspring.timers.handlers import HANDLER_SCHEME

KEPT: Final = 10_000


class Destinations:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._lanes: dict[tuple[str, str], Lane] = {}

    def __len__(self) -> int:
        """The number of URLs whose lanes are remembered."""
        return len(self._lanes)

    def lane(self, namespace: str, url: str, limit: int) -> Lane:
        lane = self._lanes.get((namespace, url))
        if lane is None or lane.limit != limit:
            if len(self._lanes) >= KEPT:
                self._lanes.clear()
            destination, site = self._destination(url)
            lane = Lane(f"{namespace} {destination}", limit, namespace=namespace, site=site)
            self._lanes[namespace, url] = lane
        return lane

    def name(self, url: str) -> str:
        """What the log calls it: never a URL, which may hold a secret."""
        destination, _ = self._destination(url)
        return destination if destination != url or url.startswith(HANDLER_SCHEME) else "a URL that may not be called"

    def _destination(self, url: str) -> tuple[str, str]:
        if url.startswith(HANDLER_SCHEME):
            return url, url
        try:
            target = self._guard.check_url(url)
        except (InvalidInput, UnsafeTarget):
            return url, url  # the guard was stricter than when the timer was made; the sender will say so
        return target.destination, target.site
