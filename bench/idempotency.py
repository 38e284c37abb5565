"""What a replay and a first run cost, on top of the work, for each store; beside other libraries on the same function.

    python -m bench.idempotency [--quick]

Contenders are measured in turn, round by round, in one process; the median counts. The function returns a small
dictionary at once, so what is measured is overhead. Compared, where they are installed: aws-lambda-powertools (with
a persistence layer in a dictionary of ours, with its own local cache in front of it, and with its Redis layer) and
idempotency (with its memory and Redis stores). Neither is a dependency: put them, and the boto3 that the first one
wants, in a directory of their own (`pip install --no-deps --target …`) and name that in PYTHONPATH. What no library
of two steps can beat with the same client is measured, too: SET NX, then SET.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

from redis import Redis as Client
from tests.servers.postgresql import PostgreSQL
from tests.servers.redis import Redis

from bench.figures import Aim, Figure, Setting, table
from mainspring.idempotency import IdempotentProcessor, InMemoryStore, PostgresStore, RedisStore, SQLiteStore
from mainspring.idempotency.stores import IdempotencyStore

ROUNDS: Final = 7
Payload = dict[str, Any]
Call = Callable[[Payload], object]


def charge(order: Payload) -> dict[str, object]:
    return {"status": "charged", "order": order["id"]}


def order(number: int) -> Payload:
    return {"id": f"order-{number}", "customer": "c-17", "cents": 12950, "lines": [{"sku": "A-1", "count": 2}]}


async def idempotency(setting: Setting) -> list[Figure]:
    """The figures of the table, as the other benchmarks give them."""
    return await asyncio.to_thread(_measure, setting)


def _measure(setting: Setting) -> list[Figure]:
    warnings.simplefilter("ignore")  # powertools warns of a missing Lambda context
    with ExitStack() as stack:
        setting.say("starting Redis and PostgreSQL")
        redis = _started(Redis(), stack)
        postgresql = _started(PostgreSQL(), stack)
        memory: dict[str, Call] = {"mainspring": _ours(InMemoryStore()), **_others_in_memory()}
        on_redis: dict[str, Call] = {
            "mainspring": _ours(_closing(RedisStore(redis.fresh()), stack)),
            **_others_on_redis(redis.url("1")),
            "SET NX, SET": _two_commands(redis.url("2")),
        }
        on_sqlite = {"mainspring": _ours(_closing(SQLiteStore(str(setting.directory / "bench.db")), stack))}
        on_postgresql = {"mainspring": _ours(_closing(PostgresStore(postgresql.fresh()), stack))}
        numbers = count()
        figures: list[Figure] = []
        for place, calls, size in (
            ("memory", memory, setting.size(4000, 50)),
            ("redis", on_redis, setting.size(400, 20)),
            ("sqlite", on_sqlite, setting.size(200, 20)),
            ("postgresql", on_postgresql, setting.size(200, 20)),
        ):
            setting.say(place)
            firsts = _medians(calls, size, lambda: order(next(numbers)))
            replays = _medians(calls, size, lambda: order(-1))
            figures += _figures(place, "first run", firsts) + _figures(place, "replay", replays)
    return figures


def _figures(place: str, what: str, medians: dict[str, float]) -> list[Figure]:
    """Ours beside the fastest other library: on Redis at least as fast; replays in memory five times."""
    ours = medians.pop("mainspring")
    libraries = {name: value for name, value in medians.items() if name != "SET NX, SET"}
    fastest = min(libraries.values(), default=None)
    powertools = [value for name, value in libraries.items() if name.startswith("powertools")]
    aim = None
    if (place, what) == ("redis", "first run") and fastest is not None:
        aim = Aim("ratio", "most", 1.0)
    if (place, what) == ("memory", "replay") and powertools:
        fastest, aim = min(powertools), Aim("ratio", "most", 0.2)
    name = f"idempotency {place}"
    others = [
        Figure(benchmark=name, what=f"{what}, {library}", unit="µs", measured=value)
        for library, value in medians.items()
    ]
    return [Figure(benchmark=name, what=what, unit="µs", measured=ours, limit=fastest, aim=aim), *others]


def _medians(calls: dict[str, Call], size: int, payload: Callable[[], Payload]) -> dict[str, float]:
    """Microseconds per call."""
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call(payload())  # connects, and makes the replayed outcome
    for _ in range(ROUNDS):
        for name, call in calls.items():
            payloads = [payload() for _ in range(size)]
            began = time.perf_counter()
            for each in payloads:
                call(each)
            rounds[name].append((time.perf_counter() - began) / size * 1e6)
    return {name: statistics.median(values) for name, values in rounds.items()}


def _started(server: Any, stack: ExitStack) -> Any:
    server.obtain()
    stack.callback(server.close)
    return server.start()


def _closing(store: IdempotencyStore, stack: ExitStack) -> IdempotencyStore:
    stack.callback(store.close)
    return store


def _ours(store: IdempotencyStore) -> Call:
    return IdempotentProcessor(store, charge).process


def _two_commands(url: str) -> Call:
    client = Client.from_url(url)

    def call(payload: Payload) -> object:
        key = str(payload["id"])
        if not client.set(key, b"running", nx=True, ex=86_400):
            return client.get(key)
        client.set(key, str(charge(payload)), ex=86_400)
        return None

    return call


# --- The others ---------------------------------------------------------------------------------------------


def _others_in_memory() -> dict[str, Call]:
    return dict(_powertools_in_memory()) | dict(_idempotency_package(None))


def _others_on_redis(url: str) -> dict[str, Call]:
    return dict(_powertools_on_redis(url)) | dict(_idempotency_package(url))


def _powertools_in_memory() -> Iterator[tuple[str, Call]]:
    library = _module("aws_lambda_powertools.utilities.idempotency.persistence.base")
    errors = _module("aws_lambda_powertools.utilities.idempotency.exceptions")
    if library is None or errors is None:
        return

    class Layer(library.BasePersistenceLayer):  # type: ignore[misc, name-defined]
        """The least that a layer can do."""

        def __init__(self) -> None:
            self.records: dict[str, Any] = {}
            super().__init__()

        def _get_record(self, idempotency_key: str) -> Any:
            if idempotency_key not in self.records:
                raise errors.IdempotencyItemNotFoundError
            return self.records[idempotency_key]

        def _put_record(self, data_record: Any) -> None:
            if self.records.setdefault(data_record.idempotency_key, data_record) is not data_record:
                old = self.records[data_record.idempotency_key]
                raise errors.IdempotencyItemAlreadyExistsError(old_data_record=old)

        def _update_record(self, data_record: Any) -> None:
            self.records[data_record.idempotency_key] = data_record

        def _delete_record(self, data_record: Any) -> None:
            del self.records[data_record.idempotency_key]

    yield "powertools, dictionary", _powertools(Layer(), use_local_cache=False)
    yield "powertools, local cache", _powertools(Layer(), use_local_cache=True)


def _powertools_on_redis(url: str) -> Iterator[tuple[str, Call]]:
    library = _module("aws_lambda_powertools.utilities.idempotency.persistence.redis")
    if library is not None:
        layer = library.RedisCachePersistenceLayer(client=Client.from_url(url, decode_responses=True))
        yield "powertools", _powertools(layer, use_local_cache=False)


def _powertools(layer: Any, *, use_local_cache: bool) -> Call:
    library = _module("aws_lambda_powertools.utilities.idempotency")
    assert library is not None
    config = library.IdempotencyConfig(use_local_cache=use_local_cache, expires_after_seconds=86_400)
    decorated = library.idempotent_function(
        charge, data_keyword_argument="order", persistence_store=layer, config=config
    )
    return lambda payload: decorated(order=payload)


def _idempotency_package(url: str | None) -> Iterator[tuple[str, Call]]:
    library = _module("idempotency")
    if library is None:
        return
    if url is None:
        store = library.MemoryStore()
    else:
        stores = _module("idempotency.stores.redis")
        assert stores is not None
        store = stores.RedisStore(Client.from_url(url))
    yield "idempotency", library.idempotent(ttl=86_400, store=store)(charge)


def _module(name: str) -> Any:
    """The module, or None where it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None


def main() -> None:
    from rich.console import Console  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as place:
        quick = "--quick" in sys.argv
        figures = asyncio.run(idempotency(Setting(Path(place), quick, lambda text: print(text, file=sys.stderr))))
    Console().print(table(figures))


if __name__ == "__main__":
    main()
