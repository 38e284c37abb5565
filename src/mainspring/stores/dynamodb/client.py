"""Requests to DynamoDB: one client, a deadline for each call, and the one place where its errors are mapped.

Nothing is sent twice: the retries of the library are off, because after a lost answer the outcome is unknown and
the caller has to find out. The only request that is repeated, by the modules above, is one that DynamoDB refused
because a transaction was open on the same row (`Contended`): then nothing was written. Any error raised here that the
modules above do not expect is a `StoreUnavailable` or `TooLarge`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, Final

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.loaders import create_loader  # type: ignore[import-untyped]

from mainspring.errors import ConfigError, MainspringError, StoreUnavailable, TooLarge
from mainspring.stores.dynamodb.address import Address

Value = dict[str, Any]
"""A typed value as DynamoDB writes it, such as `{"N": "7"}`."""
Item = dict[str, Value]
Answer = dict[str, Any]

CONNECTIONS: Final = 64
DEADLINE_SECONDS: Final = 3.0
"""For a whole call: well below a lease, so that an owner learns in time that it cannot write."""
CONTENTION_ROUNDS: Final = 10

_REFUSED_CREDENTIALS: Final = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)


class Contended(StoreUnavailable):
    """A transaction was open on the row: nothing was written, and the request may be repeated."""


class ConditionFailed(StoreUnavailable):
    """The row was not as the request expected it: nothing was written."""


class Invalid(StoreUnavailable):
    """DynamoDB refuses such a request: a defect, or a batch in which one row, or all together, are too large."""


class TableMissing(StoreUnavailable):
    """There is no such table."""


class TransactionRefused(StoreUnavailable):
    """None of a transaction was written; one code for each of its actions says why."""

    def __init__(self, codes: list[str]) -> None:
        super().__init__(f"a transaction was refused: {', '.join(codes)}")
        self.codes = codes


_KNOWN_REFUSALS: Final[dict[str, type[Exception]]] = {
    "ConditionalCheckFailedException": ConditionFailed,
    "TransactionConflictException": Contended,
}


class Client:
    """An open client. Connections are made when they are needed, so a server that returns is found again."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._trusted = False

    async def open(self) -> None:
        session = get_session()
        session.register_component("data_loader", _service_models(session.get_config_variable("data_path")))
        config = AioConfig(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=1,
            read_timeout=DEADLINE_SECONDS,
            max_pool_connections=CONNECTIONS,
            parameter_validation=False,
        )
        local = {}
        try:
            if self.address.is_local:
                # The machine has no role to ask for, and asking would leave the machine.
                session.get_component("credential_provider").remove("iam-role")
                if await session.get_credentials() is None:
                    # A local server wants a signature and accepts any.
                    local = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
            self._client = await self._stack.enter_async_context(
                session.create_client(
                    "dynamodb",
                    region_name=self.address.region,
                    endpoint_url=self.address.endpoint,
                    config=config,
                    **local,
                )
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"Expected to set up a client for {self.address}, got: {error}") from error

    def trust_credentials(self) -> None:
        """From now on a refusal of the credentials is a state of the service, not of the configuration."""
        self._trusted = True

    async def close(self) -> None:
        self._client = None
        self._trusted = False
        await self._stack.aclose()

    async def call(self, operation: str, **arguments: object) -> Answer:
        """The answer to one request; arguments and answer are as DynamoDB's API has them."""
        if self._client is None:
            raise StoreUnavailable(f"Expected the store {self.address} to be open, got one that is not")
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                answer: Answer = await getattr(self._client, operation)(**arguments)
                return answer
        except ClientError as error:
            raise self._refusal(error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            kind = StoreUnavailable if self._trusted else ConfigError
            raise kind(f"Expected AWS credentials for {self.address}, got: {error}") from error
        except Exception as error:  # from the library, the connection, or an answer that is not one
            raise self.unavailable(str(error) or type(error).__name__) from error

    def _refusal(self, error: ClientError) -> Exception:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        if code in _KNOWN_REFUSALS:
            return _KNOWN_REFUSALS[code]()
        if code == "TransactionCanceledException":
            return TransactionRefused([reason["Code"] for reason in error.response.get("CancellationReasons", [])])
        if code in ("ValidationException", "SerializationException"):
            return too_large(message) or Invalid(message)
        if code == "ResourceNotFoundException":
            return TableMissing(self.unavailable(f"{code}: {message}").detail)
        if code in _REFUSED_CREDENTIALS and not self._trusted:
            return ConfigError(f"Expected credentials that may use {self.address}, got {code}: {message}")
        return self.unavailable(f"{code}: {message}")

    def unavailable(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(f"Expected to use {self.address}, got: {reason}")


@cache
def _service_models(path: str | None) -> Any:
    """What the library knows about the service: most of the cost of a client, and the same for all of them."""
    return create_loader(path)


def too_large(message: str) -> MainspringError | None:
    """DynamoDB has no code of its own for an item that is too large; its message names the item's size."""
    if "item size" in message.lower():
        return TooLarge(f"Expected a row that fits into DynamoDB (400 KB with its index), got: {message}")
    return None


async def wait_out(round_: int) -> None:
    """Let the other transaction end; in all rounds together about a second."""
    await asyncio.sleep(min(0.005 * 2**round_, 0.2))
