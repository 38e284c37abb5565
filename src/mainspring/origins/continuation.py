"""What to do with a result: a method of the origin and its arguments, as JSON, so that it outlives the program.

    self.ctn().charged(order)               calls charged(order, result)
    self.ctn().charged(RESULT, order)       calls charged(result, order)

Names that are not methods, arguments that are not JSON, and arguments that the method does not accept are refused when
the continuation is made. Methods are looked up by name when the result arrives: keep those that still expect results.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from msgspec import Struct

from mainspring.errors import InvalidInput
from mainspring.fetches.errors import FetchError
from mainspring.origins.request import ResponseSync
from mainspring.origins.values import plain


class _Marker:
    def __repr__(self) -> str:
        return "RESULT"


RESULT: Final = _Marker()
"""Stands for the result among the arguments of a continuation. Without it, the result comes last."""


class Continuation(Struct, frozen=True, kw_only=True, rename="camel"):
    """A call that waits for a result. `places` are the arguments, by index or name, that the result becomes."""

    method: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    places: tuple[int | str, ...]

    def filled(self, result: ResponseSync | FetchError) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with the result in its place."""
        arguments, keywords = list(self.arguments), dict(self.keywords)
        for place in self.places:
            if isinstance(place, int):
                arguments[place] = result
            else:
                keywords[place] = result
        return arguments, keywords


class Continuations:
    """Makes continuations of one kind of origin: its attributes are that origin's methods."""

    def __init__(self, origin: type) -> None:
        self._origin = origin

    def __getattr__(self, method: str) -> Callable[..., Continuation]:
        function = method_of(self._origin, method)

        def make(*arguments: object, **keywords: object) -> Continuation:
            return _made(function, arguments, keywords)

        return make


def method_of(origin: type, name: str) -> FunctionType:
    """The method that results and callers may name: public, synchronous, and the origin's own."""
    found = _methods(origin)
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise AttributeError(f"Expected a public synchronous method of {origin.__name__} ({known}), got {name!r}")
    return found[name]


def _methods(origin: type) -> dict[str, FunctionType]:
    """What the class and its bases define, up to `Origin`, whose own methods are not for results."""
    found: dict[str, FunctionType] = {}
    for part in reversed(origin.__mro__):
        if part is object or part.__module__ == "mainspring.origins.origin":
            continue
        for name, value in vars(part).items():
            if isinstance(value, FunctionType) and not name.startswith("_") and not inspect.iscoroutinefunction(value):
                found[name] = value
    return found


def _made(function: FunctionType, arguments: tuple[object, ...], keywords: dict[str, object]) -> Continuation:
    places: list[int | str] = [index for index, value in enumerate(arguments) if value is RESULT]
    places += [name for name, value in keywords.items() if value is RESULT]
    if not places:
        places, arguments = [len(arguments)], (*arguments, RESULT)
    try:
        inspect.signature(function).bind(None, *arguments, **keywords)
    except TypeError as error:
        raise InvalidInput(
            f"Expected arguments that {function.__qualname__} accepts in addition to the result: {error}"
        ) from None

    def kept(value: object, where: str) -> Any:
        return None if value is RESULT else plain(value, f"{where} of {function.__qualname__}")

    return Continuation(
        method=function.__name__,
        arguments=tuple(kept(value, f"argument {index + 1}") for index, value in enumerate(arguments)),
        keywords={name: kept(value, f"argument {name!r}") for name, value in keywords.items()},
        places=tuple(places),
    )
