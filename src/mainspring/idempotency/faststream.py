"""Idempotent queue consumers: a middleware for FastStream.

    broker = RabbitBroker(url, middlewares=[IdempotentConsumption(SQLiteStore("messages.db"))])

A broker delivers at least once, and the ack does not change that: it may be lost, or the process may die before it is
sent. What makes the second delivery harmless is the record of the first, which is written before the ack.

- A message is identified by its header `Idempotency-Key` if it has one, otherwise by its body, without the fields in
  which deliveries differ. So a sender that publishes twice, under new message ids, is noticed, too.
- Each subscriber has keys of its own.
- What the subscriber returned is returned again, so replies and publications are repeated: they may have been lost. A
  pydantic model is returned as the values of JSON that it is published as, the first time and every other.
- In progress elsewhere, or done by somebody else meanwhile: nack, so that it is delivered again. The same, after a
  pause, if the store cannot be reached before the work has begun: the usual ack policy would drop the message.
- Outcome unknown, or key used for another body: reject, so that it goes to the dead-letter queue, if there is one, and
  somebody looks at it. Errors raised by the subscriber go to the ack policy.
- Done, but it could not be recorded: what was returned goes on, and the message is acked. A repeat of it is rejected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

from faststream import BaseMiddleware, ContextRepo, StreamMessage
from faststream.exceptions import NackMessage, RejectMessage
from faststream.message import SourceType
from msgspec import Struct

from mainspring import telemetry
from mainspring.errors import StoreUnavailable
from mainspring.idempotency.async_processor import AsyncIdempotentProcessor
from mainspring.idempotency.core import LEASE_SECONDS, TTL_SECONDS, WAIT_SECONDS, Match
from mainspring.idempotency.errors import InProgress, KeyReuse, LostClaim, NotRecorded, UnknownOutcome
from mainspring.idempotency.http.rules import unquoted
from mainspring.idempotency.keys import DEFAULT_EXCLUDED, Encode, is_model
from mainspring.idempotency.record import Unresolved
from mainspring.idempotency.results import Decode
from mainspring.idempotency.stores import IdempotencyStore

HEADER: Final = "idempotency-key"
STORE_RETRY_SECONDS: Final = 1.0
"""Brokers redeliver at once what was nacked; a store that is away needs longer."""
Next = Callable[[StreamMessage[Any]], Awaitable[Any]]


class Consumed(Struct, frozen=True):
    """A message as work. `message` and `call_next` are not part of what is compared."""

    body: Any
    message: StreamMessage[Any]
    call_next: Next


def header_key(message: StreamMessage[Any]) -> str | None:
    """The sender's own name for the message, if it has one."""
    given = next((str(value) for name, value in message.headers.items() if name.lower() == HEADER), None)
    return None if given is None else unquoted(given.encode()).decode()


class IdempotentConsumption:
    """Put it into `middlewares` of a broker or a router. `resolve` gets the body of the message."""

    def __init__(
        self,
        store: IdempotencyStore,
        *,
        key: Callable[[StreamMessage[Any]], str | None] = header_key,
        exclude_fields: Iterable[str] = DEFAULT_EXCLUDED,
        keep: Callable[[Any], bool] | None = None,
        resolve: Callable[[Any, Unresolved], Any] | None = None,
        safe_to_repeat: bool = False,
        ttl_seconds: float = TTL_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        result_type: Any = Any,
        match: Match = "payload",
        encode: Encode | None = None,
        decode: Decode | None = None,
    ) -> None:
        self._key = key
        self._is_typed = result_type is not Any
        self._processors: dict[str, AsyncIdempotentProcessor[Consumed, Any]] = {}
        self._make = partial(
            AsyncIdempotentProcessor[Consumed, Any],
            store,
            _run,
            exclude_fields=("message", "call_next", *(f"body.{path}" for path in exclude_fields)),
            keep=keep,
            resolve=None if resolve is None else lambda work, unresolved: resolve(work.body, unresolved),
            safe_to_repeat=safe_to_repeat,
            ttl_seconds=ttl_seconds,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            result_type=result_type,
            match=match,
            encode=encode,
            decode=decode,
        )

    def __call__(self, message: Any, /, *, context: ContextRepo) -> BaseMiddleware[Any, Any]:
        return _Consumption(self, message, context=context)

    def processor(self, subscriber: str) -> AsyncIdempotentProcessor[Consumed, Any]:
        """The processor of a subscriber, by the name of its function: for `settle` and `forget`."""
        if subscriber not in self._processors:
            self._processors[subscriber] = self._make(scope=f"consume:{subscriber}")
        return self._processors[subscriber]

    async def consume(self, subscriber: str, call_next: Next, message: StreamMessage[Any]) -> Any:
        began = False

        async def begin(message: StreamMessage[Any]) -> Any:
            nonlocal began
            began = True
            returned = await call_next(message)
            return returned if self._is_typed else _published(returned)

        work = Consumed(await message.decode(), message, begin)
        try:
            record = await self.processor(subscriber).process(work, key=self._key(message))
        except (InProgress, LostClaim) as error:
            telemetry.info("message is being processed elsewhere", subscriber=subscriber, key=error.key)
            raise NackMessage from error
        except StoreUnavailable as error:
            if began:
                raise
            telemetry.warning("message put back", subscriber=subscriber, reason=error.detail)
            await asyncio.sleep(STORE_RETRY_SECONDS)
            raise NackMessage from error
        except NotRecorded as error:
            telemetry.warning(
                "message processed, but not recorded", subscriber=subscriber, key=error.key, reason=error.detail
            )
            return error.result
        except (KeyReuse, UnknownOutcome) as error:
            telemetry.warning("message rejected", subscriber=subscriber, key=error.key, reason=error.detail)
            raise RejectMessage from error
        return record.result


class _Consumption(BaseMiddleware[Any, Any]):
    """FastStream makes one for each message."""

    def __init__(self, owner: IdempotentConsumption, message: Any, /, *, context: ContextRepo) -> None:
        super().__init__(message, context=context)
        self._owner = owner

    async def consume_scope(self, call_next: Next, msg: StreamMessage[Any]) -> Any:
        if msg.source_type is SourceType.RESPONSE:  # the answer to a request of ours: nobody works on it
            return await call_next(msg)
        subscriber = self.context.get_local("handler_")
        return await self._owner.consume(subscriber.specification.call_name, call_next, msg)


def _published(value: Any) -> Any:
    """What a broker publishes for a pydantic model, alone or in lists and dictionaries."""
    if is_model(type(value)):
        return value.model_dump(mode="json")
    if type(value) is list:
        return [_published(item) for item in value]
    if type(value) is dict:
        return {name: _published(item) for name, item in value.items()}
    return value


async def _run(work: Consumed) -> Any:
    return await work.call_next(work.message)
