"""What origins use as `self.svc.<name>`: created when first used, once for the whole program.

A service is a callable without arguments that creates an object. Packages offer theirs as entry points of the group
`mainspring.services`; a program passes its own to `Mainspring(services=...)`, and these take precedence. Origins run in
threads, so a service may be used by several at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from threading import Lock
from typing import Any, Final

from mainspring.errors import ConfigError

GROUP: Final = "mainspring.services"
BUILT_IN: Final = ("proxy_fetch",)
ServiceFactory = Callable[[], Any]


class Services:
    """Finds and makes the services of one program. Safe to use from several threads."""

    def __init__(self, factories: Mapping[str, ServiceFactory] | None = None) -> None:
        self._factories = dict(factories or {})
        for name in self._factories:
            _check_name(name)
        self._made: dict[str, Any] = {}
        self._lock = Lock()
        self._offered: dict[str, EntryPoint] | None = None

    def get(self, name: str) -> Any:
        """The service. Raises AttributeError that lists the known ones if there is none of that name."""
        if name in self._made:  # made and never replaced: it can be read without the lock
            return self._made[name]
        with self._lock:
            if name not in self._made:
                self._made[name] = self._factory(name)()
            return self._made[name]

    def names(self) -> list[str]:
        return sorted({*BUILT_IN, *self._factories, *self._entry_points()})

    def _factory(self, name: str) -> ServiceFactory:
        if name in self._factories:
            return self._factories[name]
        point = self._entry_points().get(name)
        if point is None:
            raise AttributeError(f"Expected a service ({', '.join(self.names())}), got {name!r}")
        factory: ServiceFactory = point.load()
        return factory

    def _entry_points(self) -> dict[str, EntryPoint]:
        """What the installed packages offer; read once, and not before it is needed."""
        if self._offered is None:
            offered: dict[str, EntryPoint] = {}
            for point in entry_points(group=GROUP):
                _check_name(point.name)
                other = offered.setdefault(point.name, point)
                if other.value != point.value:
                    raise ConfigError(f"Expected one service named {point.name!r}, got {other.value} and {point.value}")
            self._offered = offered
        return self._offered


def _check_name(name: str) -> None:
    if not name.isidentifier() or name.startswith("_") or name in BUILT_IN:
        raise ConfigError(f"Expected the name of a service to be an identifier of its own, got {name!r}")
