"""`@idempotent`: a function whose arguments are the payload.

The payload of a function of one parameter is its argument; of several, the arguments by name, defaults included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, overload

from mainspring.errors import ConfigError
from mainspring.idempotency.keys import checked_scope
from mainspring.idempotency.stores import IdempotencyStore
from mainspring.idempotency.sync_processor import IdempotentProcessor

if TYPE_CHECKING:
    from inspect import Signature

A = ParamSpec("A")
B = ParamSpec("B")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


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
    if isinstance(store, FunctionType):
        raise ConfigError("Expected a store, as in @idempotent(store), got a function")

    def decorate(work: Callable[A, R_co]) -> IdempotentFunction[A, R_co]:
        from inspect import iscoroutinefunction  # noqa: PLC0415  (takes longer to load than this whole library)

        payload_of, call = _shape(work)
        settings: Options = {**options, "scope": checked_scope(options.get("scope"), work)}

        def key_of(*arguments: A.args, **named: A.kwargs) -> str | None:
            return None if key is None else key(*arguments, **named)

        if iscoroutinefunction(work):
            from mainspring.idempotency.async_processor import AsyncIdempotentProcessor  # noqa: PLC0415  (few need both)

            waiting: AsyncIdempotentProcessor[Any, Any] = AsyncIdempotentProcessor(store, call, **settings)

            async def awaited(*arguments: A.args, **named: A.kwargs) -> Any:
                return (await waiting.process(payload_of(*arguments, **named), key_of(*arguments, **named))).result

            return _function(cast("Callable[A, R_co]", work), awaited, waiting)

        blocking: IdempotentProcessor[Any, Any] = IdempotentProcessor(store, call, **settings)

        def called(*arguments: A.args, **named: A.kwargs) -> Any:
            return blocking.process(payload_of(*arguments, **named), key_of(*arguments, **named)).result

        return _function(work, called, blocking)

    return decorate


def _function(work: Callable[A, R_co], wrapper: Callable[A, Any], processor: object) -> IdempotentFunction[A, R_co]:
    function = cast("IdempotentFunction[A, R_co]", wraps(work)(wrapper))
    function.processor = processor
    return function


def _shape(work: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[[Any], Any]]:
    """How arguments become a payload, and how the function is called with a payload."""
    from inspect import Parameter, signature  # noqa: PLC0415  (see above)

    form = signature(work)
    is_named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    unnamed = [str(parameter) for parameter in form.parameters.values() if parameter.kind not in is_named]
    if unnamed:
        raise ConfigError(f"Expected a function whose parameters all have names, got {', '.join(unnamed)}")
    if len(form.parameters) == 1:
        only = next(iter(form.parameters))
        return lambda *arguments, **named: _bound(form, arguments, named)[only], lambda payload: work(**{only: payload})
    return lambda *arguments, **named: _bound(form, arguments, named), lambda payload: work(**payload)


def _bound(form: Signature, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    bound = form.bind(*arguments, **named)
    bound.apply_defaults()
    return dict(bound.arguments)
