"""The driver, awaited: its answers come in on a thread of its own and are handed over to the event loop.

This is the one place that knows the driver and its errors. Nothing is retried here or in the driver: after a
timeout or a lost connection the outcome of a write is unknown, and only its caller can look. The driver keeps
trying to connect in the background, so a server that returns is used again from the next call on.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, cast

from cassandra import (  # type: ignore[import-untyped]
    AuthenticationFailed,
    ConsistencyLevel,
    DependencyException,
    InvalidRequest,
    ReadFailure,
    Unauthorized,
    WriteFailure,
)
from cassandra.auth import PlainTextAuthProvider  # type: ignore[import-untyped]
from cassandra.policies import (  # type: ignore[import-untyped]
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import ServerError  # type: ignore[import-untyped]
from cassandra.query import BatchStatement, BatchType, tuple_factory  # type: ignore[import-untyped]

from mainspring.errors import ConfigError, MainspringError, StoreUnavailable
from mainspring.stores.cassandra.address import Address

try:
    import cassandra.cluster as driver  # type: ignore[import-untyped]
except DependencyException as error:
    raise ConfigError(f"Expected a Cassandra driver with an event loop to run on, got: {error}") from error

STATEMENT_SECONDS: Final = 3.0
"""Well below a lease, so that whoever waits for an answer learns in time that there is none."""
CONNECT_SECONDS: Final = 5.0

Value = int | str | bytes | None | list[int] | list[str] | list[tuple[int, str, bytes]]
Row = tuple[Value, ...]


class Statement(Protocol):
    """A prepared statement: known to the servers, to be bound to values."""

    def bind(self, values: Sequence[Value]) -> Bound: ...


class Bound(Protocol):
    consistency_level: int


class _Answer(Protocol):
    def add_callbacks(
        self, callback: Callable[[list[Row] | None], None], errback: Callable[[Exception], None]
    ) -> None: ...


class _Session(Protocol):
    default_fetch_size: int | None

    def execute(self, query: str, *, timeout: float) -> Sequence[Row]: ...
    def execute_async(self, query: Bound, *, timeout: float) -> _Answer: ...
    def prepare(self, query: str) -> Statement: ...


class _Cluster(Protocol):
    def connect(self) -> _Session: ...
    def shutdown(self) -> None: ...


class NotReady(StoreUnavailable):
    """A server does not know what a statement refers to, or fails on it, as happens while a table is being made."""


@contextmanager
def mapping_errors(*, at_start: bool = False) -> Iterator[None]:
    """What the driver raises becomes what the contract names.

    `at_start`: being refused means a wrong configuration. Later on, rights that were lost can come back.
    """
    try:
        yield
    except driver.NoHostAvailable as error:
        causes = list(error.errors.values()) if isinstance(error.errors, dict) else []
        if at_start and any(isinstance(cause, AuthenticationFailed) for cause in causes):
            raise ConfigError(f"Expected credentials that Cassandra accepts, got: {causes[0]}") from error
        raise StoreUnavailable(f"Expected a Cassandra server that answers, got: {error}") from error
    except (AuthenticationFailed, Unauthorized) as error:
        kind = ConfigError if at_start else StoreUnavailable
        raise kind(f"Expected credentials that Cassandra accepts, got: {error}") from error
    except (InvalidRequest, ServerError, ReadFailure, WriteFailure) as error:
        raise NotReady(f"Expected Cassandra to do a statement, got: {type(error).__name__}: {error}") from error
    except MainspringError:
        raise
    except Exception as error:  # from the driver, the connection or the values: there was no answer
        raise StoreUnavailable(f"Expected an answer from Cassandra, got: {type(error).__name__}: {error}") from error


class Connection:
    """A session with the cluster. `connect` and `close` block; everything else is for the event loop."""

    def __init__(self, address: Address) -> None:
        self._quorum = ConsistencyLevel.LOCAL_QUORUM if address.local else ConsistencyLevel.QUORUM
        self._serial = ConsistencyLevel.LOCAL_SERIAL if address.local else ConsistencyLevel.SERIAL
        nearby = DCAwareRoundRobinPolicy(address.datacenter) if address.datacenter else RoundRobinPolicy()
        profile = driver.ExecutionProfile(
            # Without shuffling, writes to one partition meet at one coordinator as long as it is up, and their
            # ballots do not race each other.
            load_balancing_policy=TokenAwarePolicy(nearby, shuffle_replicas=False),
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=self._quorum,
            serial_consistency_level=self._serial,
            request_timeout=STATEMENT_SECONDS,
            row_factory=tuple_factory,
        )
        self._cluster = cast(
            _Cluster,
            driver.Cluster(
                list(address.hosts),
                port=address.port,
                # Spoken by every Cassandra since 3.0 and every Scylla, so there is nothing to negotiate.
                protocol_version=4,
                compression=False,
                # The driver sends a long batch in pieces; without this, each waits for the receipt of the one before.
                sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
                auth_provider=PlainTextAuthProvider(address.user, address.password) if address.user else None,
                ssl_context=ssl.create_default_context() if address.tls else None,
                connect_timeout=CONNECT_SECONDS,
                control_connection_timeout=STATEMENT_SECONDS,
                # So that a server that hangs is noticed like one that is gone.
                idle_heartbeat_interval=2,
                idle_heartbeat_timeout=STATEMENT_SECONDS,
                reconnection_policy=ConstantReconnectionPolicy(1.0, max_attempts=None),
                monitor_reporting_enabled=False,
                execution_profiles={driver.EXEC_PROFILE_DEFAULT: profile},
            ),
        )
        self._session: _Session | None = None

    def connect(self) -> None:
        with mapping_errors(at_start=True):
            self._session = self._cluster.connect()
            # Every query that could be long has a LIMIT of its own.
            self._session.default_fetch_size = None

    def close(self) -> None:
        self._cluster.shutdown()
        self._session = None

    def run(self, query: str, *, seconds: float = STATEMENT_SECONDS) -> list[Row]:
        """One statement without parameters; blocks. For the schema."""
        with mapping_errors(at_start=True):
            return list(self._opened().execute(query, timeout=seconds))

    def prepare(self, query: str) -> Statement:
        """Blocks. For the start."""
        with mapping_errors(at_start=True):
            return self._opened().prepare(query)

    async def read(
        self, statement: Statement, *values: Value, serial: bool = False, seconds: float = STATEMENT_SECONDS
    ) -> list[Row]:
        """All rows of one query, as a quorum knows them. `serial` completes open conditional writes first."""
        with mapping_errors():
            bound = statement.bind(values)
        if serial:
            bound.consistency_level = self._serial
        return await self._execute(bound, seconds=seconds)

    async def write(self, statement: Statement, *values: Value) -> Row:
        """One conditional statement: the row that says whether it was applied and, if not, what is there."""
        with mapping_errors():
            bound = statement.bind(values)
        [row] = await self._execute(bound)
        return row

    async def write_batch(self, statements: Sequence[tuple[Statement, Sequence[Value]]]) -> bool:
        """Conditional statements on one partition: all are applied, or none."""
        batch = BatchStatement(
            BatchType.UNLOGGED, consistency_level=self._quorum, serial_consistency_level=self._serial
        )
        with mapping_errors():
            for statement, values in statements:
                batch.add(statement, values)
        rows = await self._execute(cast(Bound, batch))
        return bool(rows[0][0])

    async def _execute(self, statement: Bound, *, seconds: float = STATEMENT_SECONDS) -> list[Row]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[Row]] = loop.create_future()

        def tell(rows: list[Row] | None, error: Exception | None) -> None:
            if waiter.done():
                return
            if error is None:
                waiter.set_result(rows or [])
            else:
                waiter.set_exception(error)

        with mapping_errors():
            self._opened().execute_async(statement, timeout=seconds).add_callbacks(
                lambda rows: _hand_over(loop, tell, rows, None), lambda error: _hand_over(loop, tell, None, error)
            )
            return await waiter

    def _opened(self) -> _Session:
        if self._session is None:
            raise StoreUnavailable("Expected the Cassandra store to be open, got one that is not")
        return self._session


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    tell: Callable[[list[Row] | None, Exception | None], None],
    rows: list[Row] | None,
    error: Exception | None,
) -> None:
    """Called on the driver's thread. If the loop was closed meanwhile, nobody is left waiting."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell, rows, error)
