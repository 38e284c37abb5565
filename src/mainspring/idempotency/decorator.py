"""`@idempotent`: a function whose arguments are the payload.

The payload of a function of one parameter is its argument; of several, the arguments by name, defaults included. Fields
that describe a delivery are left out of the first, as everywhere; of the second nothing is, unless it is named: an
argument is what its function is called with, whatever it is called.

What cannot work is refused here, at decoration, not by its first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from mainspring.errors import ConfigError
from mainspring.idempotency.core import Match, refuse_generators
from mainspring.idempotency.keys import Encode, checked_scope
from mainspring.idempotency.results import Decode
from mainspring.idempotency.stores import IdempotencyStore, checked_store
from mainspring.idempotency.sync_processor import IdempotentProcessor

if TYPE_CHECKING:
    from inspect import Signature

A = ParamSpec("A")
B = ParamSpec("B")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

_LATER: Final = frozenset(
    {"Awaitable", "Coroutine", "Future", "Task", "Generator", "Iterator", "AsyncGenerator", "AsyncIterator"}
)
"""What a plain function may be annotated to return, if its work is done only later."""
_OBJECTS: Final = ("self", "cls")
"""What the first parameter of a method is called."""


class Options(TypedDict, total=False):
    """The parameters of the processors."""

    scope: str | None
    exclude_fields: Iterable[str]
    ttl_seconds: float
    lease_seconds: float
    wait_seconds: float
    keep: Callable[[Any], bool] | None
    resolve: Callable[..., Any] | None
    safe_to_repeat: bool
    result_type: Any
    match: Match
    encode: Encode | None
    decode: Decode | None


class IdempotentFunction(Protocol[A, R_co]):
    """The original function, and its processor with counts, `settle` and `forget`."""

    processor: Any
    """An `IdempotentProcessor`, or an `AsyncIdempotentProcessor` for a coroutine function."""

    def __call__(self, *arguments: A.args, **named: A.kwargs) -> R_co: ...

    @overload
    def __get__(self, instance: None, owner: type) -> IdempotentFunction[A, R_co]: ...

    @overload
    def __get__(
        self: IdempotentFunction[Concatenate[Any, B], T], instance: object, owner: type | None = None
    ) -> Callable[B, T]: ...


class Decorator(Protocol):
    def __call__(self, work: Callable[A, R_co], /) -> IdempotentFunction[A, R_co]: ...


def idempotent(
    store: IdempotencyStore, *, key: Callable[..., str | None] | None = None, **options: Unpack[Options]
) -> Decorator:
    """Run the function once for equal arguments, or once for each key that `key` derives from them.

    @idempotent(store, key=lambda order: order["id"])
    def charge(order): ...
    """
    if isinstance(store, FunctionType | staticmethod | classmethod):
        raise ConfigError("Expected a store, as in @idempotent(store), got a function")
    checked_store(store)
    if key is not None and not callable(key):
        raise ConfigError(f'Expected a function as key=, such as lambda order: order["id"], got {key!r:.100}')
    if options.get("match") == "key" and key is None:
        raise ConfigError('Expected key= with match="key", because the key alone decides, got none')

    def decorate(work: Callable[A, R_co]) -> IdempotentFunction[A, R_co]:
        from inspect import iscoroutinefunction  # noqa: PLC0415  (takes longer to load than this whole library)

        _check_kind(work)
        parameters, payload_of, call = _shape(work)
        _check_object(parameters, options)
        settings: Options = {**options, "scope": checked_scope(options.get("scope"), work)}
        if len(parameters) != 1 or parameters[0] in _OBJECTS:
            settings.setdefault("exclude_fields", ())

        def key_of(*arguments: A.args, **named: A.kwargs) -> str | None:
            return None if key is None else key(*arguments, **named)

        if iscoroutinefunction(work) or iscoroutinefunction(type(work).__call__):
            from mainspring.idempotency.async_processor import AsyncIdempotentProcessor  # noqa: PLC0415  (few need both)

            waiting: AsyncIdempotentProcessor[Any, Any] = AsyncIdempotentProcessor(store, call, **settings)

            async def awaited(*arguments: A.args, **named: A.kwargs) -> Any:
                return (await waiting.process(payload_of(*arguments, **named), key_of(*arguments, **named))).result

            return _function(work, awaited, waiting)

        blocking: IdempotentProcessor[Any, Any] = IdempotentProcessor(store, call, **settings)

        def called(*arguments: A.args, **named: A.kwargs) -> Any:
            return blocking.process(payload_of(*arguments, **named), key_of(*arguments, **named)).result

        return _function(work, called, blocking)

    return decorate


def _function(work: Callable[A, R_co], wrapper: Callable[A, Any], processor: object) -> IdempotentFunction[A, R_co]:
    function = cast("IdempotentFunction[A, R_co]", wraps(work)(wrapper))
    function.processor = processor
    return function


def _check_kind(work: object) -> None:
    """Refuse what is done only after its function has returned, or is not called as it looks."""
    from inspect import signature  # noqa: PLC0415  (see above)

    if isinstance(work, staticmethod | classmethod):
        name = type(work).__name__
        raise ConfigError(f"Expected @idempotent below @{name}, next to the function, got it above")
    if isinstance(work, type) or not callable(work):
        raise ConfigError(f"Expected a function as the work, got {work!r:.100}")
    refuse_generators(work)
    returned = signature(work).return_annotation
    text = returned if isinstance(returned, str) else getattr(returned, "__name__", str(returned))
    if text.partition("[")[0].rpartition(".")[2] in _LATER:
        raise ConfigError(
            f"Expected a function that returns its result, got one that returns {text}: use `async def`, or return a "
            "list"
        )


def _check_object(parameters: list[str], options: Options) -> None:
    """Whether the object of a method counts is for its author to say: it is hardly ever part of a payload."""
    if not parameters or parameters[0] not in _OBJECTS or "exclude_fields" in options or options.get("match") == "key":
        return
    raise ConfigError(
        f"Expected exclude_fields= for a method, to say whether its object counts, got none: "
        f'exclude_fields=("{parameters[0]}",) if calls of all objects share their keys, () if what it holds is part of '
        "the payload"
    )


def _shape(work: Callable[..., Any]) -> tuple[list[str], Callable[..., Any], Callable[[Any], Any]]:
    """The names of the parameters, how arguments become a payload, and how the function is called with a payload."""
    from inspect import Parameter, signature  # noqa: PLC0415  (see above)

    form = signature(work)
    is_named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    unnamed = [str(parameter) for parameter in form.parameters.values() if parameter.kind not in is_named]
    if unnamed:
        raise ConfigError(f"Expected a function whose parameters all have names, got {', '.join(unnamed)}")
    only = next(iter(form.parameters), "")
    if len(form.parameters) == 1 and only not in _OBJECTS:

        def argument(*arguments: Any, **named: Any) -> Any:
            return _bound(form, arguments, named)[only]

        return [only], argument, lambda payload: work(**{only: payload})

    def by_name(*arguments: Any, **named: Any) -> Any:
        return _bound(form, arguments, named)

    return list(form.parameters), by_name, lambda payload: work(**payload)


def _bound(form: Signature, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    bound = form.bind(*arguments, **named)
    bound.apply_defaults()
    return dict(bound.arguments)
