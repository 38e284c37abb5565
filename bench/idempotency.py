"""What a replay and a first run cost, on top of the work, for each store; beside other libraries on the same function.

    python -m bench.idempotency [--quick]

Contenders are measured in turn, round by round, in one process; the median counts. The function returns a small
dictionary at once, so what is measured is overhead. Every call gets a payload object of its own. `replay` repeats one
payload, `replay, many payloads` goes round a thousand of them, `replay, large payload` has one of 1.4 kB.

Compared are aws-lambda-powertools (with a persistence layer in a dictionary of ours, with its own local cache in front
of that, and with its Redis layer) and idempotency (with its memory and Redis stores). They are no dependencies of
anything here: put them in a directory of their own, and name that in PYTHONPATH.

    pip install --no-deps --target DIR aws-lambda-powertools==3.37.0 idempotency==0.1.0 \\
        boto3==1.43.117 botocore s3transfer jmespath
    PYTHONPATH=DIR python -m bench.idempotency

What is not installed is not compared, which is said. What no library of two steps can beat with the same client is
measured, too: SET NX, then SET.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final

from redis import Redis as Client
from tests.servers.postgresql import PostgreSQL
from tests.servers.redis import Redis

from bench.figures import Aim, Figure, Setting, table
from mainspring.idempotency import IdempotentProcessor, InMemoryStore, PostgresStore, RedisStore, SQLiteStore
from mainspring.idempotency.stores import IdempotencyStore

ROUNDS: Final = 7
MANY: Final = 1000
Payload = dict[str, Any]
Call = Callable[[Payload], object]


def charge(order: Payload) -> dict[str, object]:
    return {"status": "charged", "order": order["id"]}


def order(number: int) -> Payload:
    return {"id": f"order-{number}", "customer": "c-17", "cents": 12950, "lines": [{"sku": "A-1", "count": 2}]}


def large_order() -> Payload:
    lines = [
        {
            "sku": f"A-{number}",
            "count": number,
            "price": 2.5 * number,
            "name": "A fine thing to have",
            "tags": ["a", "b"],
        }
        for number in range(16)
    ]
    return {
        "id": "large",
        "at": "2026-01-01T10:00:00.000Z",
        "lines": lines,
        "address": {"city": "Rome", "zip": "00100"},
    }


async def idempotency(setting: Setting) -> list[Figure]:
    """The figures of the table, as the other benchmarks give them."""
    return await asyncio.to_thread(_measure, setting)


def _measure(setting: Setting) -> list[Figure]:
    warnings.simplefilter("ignore")  # powertools warns of a missing Lambda context
    with ExitStack() as stack:
        setting.say("starting Redis and PostgreSQL")
        redis = _started(Redis(), stack)
        postgresql = _started(PostgreSQL(), stack)
        memory: dict[str, Call] = {"mainspring": _ours(InMemoryStore()), **_others_in_memory(setting.notes.append)}
        on_redis: dict[str, Call] = {
            "mainspring": _ours(_closing(RedisStore(redis.fresh()), stack)),
            **_others_on_redis(redis.url("1"), setting.notes.append),
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
        figures += _replays_of_others(memory, setting)
    return figures


def _replays_of_others(calls: dict[str, Call], setting: Setting) -> list[Figure]:
    """From memory, where what a key costs is most of it: payloads that were not seen lately, and a large one."""
    known = range(-MANY, 0)
    for call in calls.values():
        for number in known:
            call(order(number))
    numbers = cycle(known)
    many = _medians(calls, setting.size(4000, 50), lambda: order(next(numbers)))
    large = _medians(calls, setting.size(400, 20), large_order)
    return _figures("memory", "replay, many payloads", many) + _figures("memory", "replay, large payload", large)


def _figures(place: str, what: str, medians: dict[str, float]) -> list[Figure]:
    """Ours beside the fastest other library: on Redis at least as fast; replays in memory five times."""
    ours = medians.pop("mainspring")
    libraries = {name: value for name, value in medians.items() if name != "SET NX, SET"}
    fastest = min(libraries.values(), default=None)
    powertools = [value for name, value in libraries.items() if name.startswith("powertools")]
    aim = None
    if (place, what) == ("redis", "first run") and fastest is not None:
        aim = Aim("ratio", "most", 1.0)
    if place == "memory" and what in ("replay", "replay, many payloads") and powertools:
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


def _others_in_memory(note: Callable[[str], None]) -> dict[str, Call]:
    return _present(note, {"aws-lambda-powertools": _powertools_in_memory, "idempotency": _idempotency_in_memory})


def _others_on_redis(url: str, note: Callable[[str], None]) -> dict[str, Call]:
    return _present(
        note,
        {
            "aws-lambda-powertools with Redis": partial(_powertools_on_redis, url),
            "idempotency with Redis": partial(_idempotency_on_redis, url),
        },
    )


def _present(
    note: Callable[[str], None], others: dict[str, Callable[[], Iterator[tuple[str, Call]]]]
) -> dict[str, Call]:
    """Those whose modules are all there. Nobody shall believe that he has compared what was not."""
    calls: dict[str, Call] = {}
    for name, others_of in others.items():
        try:
            calls |= dict(others_of())
        except ModuleNotFoundError as error:
            note(f"NOT COMPARED: {name} ({error}); what it needs: python -m bench.idempotency --help")
    return calls


def _powertools_in_memory() -> Iterator[tuple[str, Call]]:
    library: Any = import_module("aws_lambda_powertools.utilities.idempotency.persistence.base")
    errors: Any = import_module("aws_lambda_powertools.utilities.idempotency.exceptions")

    class Layer(library.BasePersistenceLayer):  # type: ignore[misc]
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
    library: Any = import_module("aws_lambda_powertools.utilities.idempotency.persistence.redis")
    layer = library.RedisCachePersistenceLayer(client=Client.from_url(url, decode_responses=True))
    yield "powertools", _powertools(layer, use_local_cache=False)


def _powertools(layer: Any, *, use_local_cache: bool) -> Call:
    library: Any = import_module("aws_lambda_powertools.utilities.idempotency")
    config = library.IdempotencyConfig(use_local_cache=use_local_cache, expires_after_seconds=86_400)
    decorated = library.idempotent_function(
        charge, data_keyword_argument="order", persistence_store=layer, config=config
    )
    return lambda payload: decorated(order=payload)


def _idempotency_in_memory() -> Iterator[tuple[str, Call]]:
    library: Any = import_module("idempotency")
    yield "idempotency", library.idempotent(ttl=86_400, store=library.MemoryStore())(charge)


def _idempotency_on_redis(url: str) -> Iterator[tuple[str, Call]]:
    library: Any = import_module("idempotency")
    store = import_module("idempotency.stores.redis").RedisStore(Client.from_url(url))
    yield "idempotency", library.idempotent(ttl=86_400, store=store)(charge)


def main() -> None:
    from rich.console import Console  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        "python -m bench.idempotency", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it works, measures nothing")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as place:
        setting = Setting(Path(place), quick, lambda text: print(text, file=sys.stderr))
        figures = asyncio.run(idempotency(setting))
    Console().print(table(figures))
    for note in setting.notes:
        print(note)


if __name__ == "__main__":
    main()
