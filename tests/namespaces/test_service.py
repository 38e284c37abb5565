"""What is wrong with a namespace is said of its field."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

from mainspring.clock import SystemClock
from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings
from mainspring.config import Config
from mainspring.errors import Conflict, FieldError, InvalidInput
from mainspring.model import Detail, Namespace, Timer
from mainspring.namespaces.messages import CreateNamespace, UpdateNamespace
from mainspring.namespaces.service import NAMESPACES, SEQUENCES, SHARDS, NamespaceService
from mainspring.store import Put, RecordStore
from mainspring.stores import store_from_url
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from tests.support.simulated_jobs import World
from tests.support.simulated_jobs import simulate as simulate_world


@pytest.mark.parametrize("secret", ["", "x", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64"])
async def test_a_bad_secret_is_named_by_its_pointer_and_not_repeated(instance: Instance, secret: str) -> None:
    for ask in (
        instance.namespaces.create(CreateNamespace(name="new", secret=secret)),
        instance.namespaces.update(UpdateNamespace(name="default", secret=secret)),
    ):
        with pytest.raises(InvalidInput) as refused:
            await ask
        assert refused.value.errors == (FieldError("/secret", refused.value.detail),)
        assert len(secret) < 7 or secret not in refused.value.detail
    assert [namespace.name for namespace in instance.namespaces.known] == ["default"]


def test_secrets_are_drawn_from_what_ids_tell_nothing_about() -> None:
    """Delivery ids are drawn from the same source, and everybody sees them."""
    assert isinstance(Surroundings().randomness, random.SystemRandom)


async def test_shards_are_bounded_in_all_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    config = Config(store="memory://", data_dir=str(tmp_path), drain_seconds=0.2, shard_limit=4_200)
    async with Instance(config) as instance:
        await instance.namespaces.create(CreateNamespace(name="large", shard_count=4096))
        with pytest.raises(Conflict, match=r"at most 4200 shards in all .*shard_limit.*namespace delete") as refused:
            await instance.namespaces.create(CreateNamespace(name="too-large", shard_count=256))
        assert [error.pointer for error in refused.value.errors] == ["/shardCount"]
        await instance.namespaces.create(CreateNamespace(name="small", shard_count=16))
        for number in range(6):  # the services' own are always made
            await instance.namespaces.system(f"mainspring.own{number}")


async def test_a_limit_below_what_the_first_namespace_needs_ends_the_start_with_its_reason(tmp_path: Path) -> None:
    config = Config(store="memory://", data_dir=str(tmp_path), shard_limit=10)
    with pytest.raises(Conflict, match="at most 10 shards in all"):
        async with Instance(config):
            pass


async def test_shards_are_bounded_however_many_ask_at_once(tmp_path: Path) -> None:
    config = Config(store="memory://", data_dir=str(tmp_path), drain_seconds=0.2, shard_limit=1_000)
    async with Instance(config) as instance:
        asked = (CreateNamespace(name=f"n{number}", shard_count=128) for number in range(40))
        answers = await asyncio.gather(*map(instance.namespaces.create, asked), return_exceptions=True)
        assert sum(isinstance(answer, Conflict) for answer in answers) == 33
        assert sum(namespace.shard_count for namespace in instance.namespaces.known) <= 1_000


async def test_as_many_shards_as_there_may_be_are_claimed_in_seconds(tmp_path: Path) -> None:
    config = Config(store=f"sqlite:///{tmp_path / 'm.db'}", data_dir=str(tmp_path), drain_seconds=0.2)
    store = store_from_url(config.store, clock=SystemClock())
    await store.open()
    namespaces = NamespaceService(records=store, clock=SystemClock(), randomness=random.Random(1), created=lambda: None)
    for name in ("a", "b", "c"):
        await namespaces.create(CreateNamespace(name=name, shard_count=4096))
    await store.close()
    began = time.monotonic()
    async with Instance(config) as instance:
        assert instance.engine is not None
        assert instance.engine.owned_shards == 3 * 4096 + 16
        assert instance.ownership.valid()
        assert time.monotonic() - began < config.lease_seconds


async def test_all_system_namespaces_have_as_many_shards_as_the_first_whatever_an_instance_is_configured_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}"

    def config(shards: int) -> Config:
        return Config(store=url, data_dir=str(tmp_path), drain_seconds=0.2, system_shards=shards)

    async with Instance(config(64)) as instance:
        assert (await instance.namespaces.system("mainspring.first")).shard_count == 64
    assert "system_shards" not in caplog.text
    async with Instance(config(32)) as instance:
        assert (await instance.namespaces.system("mainspring.first")).shard_count == 64
        assert (await instance.namespaces.system("mainspring.second")).shard_count == 64
    [warning] = [record for record in caplog.records if "system_shards is for new clusters" in record.message]
    assert vars(warning)["fields"] == {"setting": 32, "present": 64}


class SlowScans(MemoryStore):
    """What a scan answers is on its way for a second."""

    async def scan_records(self, *args: Any, **options: Any) -> Any:
        found = await super().scan_records(*args, **options)
        await asyncio.sleep(1.0)
        return found


def service(records: RecordStore, clock: SimulatedClock) -> NamespaceService:
    return NamespaceService(records=records, clock=clock, randomness=random.Random(1), created=lambda: None)


def test_what_was_made_or_changed_while_namespaces_are_read_stays_known() -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock = SimulatedClock(loop)
        store = SlowScans(clock)
        namespaces = service(store, clock)
        await namespaces.open()
        await namespaces.create(CreateNamespace(name="x"))
        creating = asyncio.create_task(namespaces.create(CreateNamespace(name="y")))
        reading = asyncio.create_task(namespaces.refresh())
        await asyncio.sleep(1.5)  # "y" was made, while the last scan goes on
        await namespaces.update(UpdateNamespace(name="x", host_limit=7))
        await namespaces.system("mainspring.s")
        await creating
        await reading
        assert {namespace.name for namespace in namespaces.known} == {"default", "x", "y", "mainspring.s"}
        assert (await namespaces.find("x")).host_limit == 7

    run_simulated(main)


@pytest.mark.parametrize("seed", range(20))
def test_of_two_namespaces_that_are_made_at_about_the_same_time_both_are_known(seed: int) -> None:
    async def main(loop: SimulatedLoop) -> None:
        clock = SimulatedClock(loop)
        namespaces = service(SlowScans(clock), clock)
        await namespaces.open()

        async def later() -> None:
            await asyncio.sleep(seed * 0.2)
            await namespaces.create(CreateNamespace(name="y"))

        await asyncio.gather(namespaces.create(CreateNamespace(name="x")), later())
        assert {namespace.name for namespace in namespaces.known} == {"default", "x", "y"}

    run_simulated(main)


@pytest.mark.parametrize("lost", [None, b"0", b"-7", b"\xff", b"99999999999999"])
@pytest.mark.parametrize("is_system", [False, True])
async def test_a_counter_of_shards_that_is_lost_or_set_back_gives_nobody_the_shards_of_another(
    instance: Instance, lost: bytes | None, is_system: bool
) -> None:
    await instance.namespaces.create(CreateNamespace(name="before", shard_count=64))
    await instance.namespaces.system("mainspring.own")
    await set_counter(instance, lost)
    if is_system:
        await instance.namespaces.system("mainspring.later")
    await instance.namespaces.create(CreateNamespace(name="after", shard_count=64))
    owned = [shard_id for namespace in instance.namespaces.known for shard_id in namespace.shards]
    assert len(owned) == len(set(owned))
    assert max(owned) < 2 * (64 + 64 + 16 + 16 + 16)


async def test_nobody_is_given_shards_while_neither_the_counter_nor_a_namespace_can_be_read(
    instance: Instance,
) -> None:
    await instance.namespaces.create(CreateNamespace(name="before", shard_count=64))
    record = await instance.store.get_record(NAMESPACES, "before", now=0)
    assert record is not None
    await instance.store.put_record(NAMESPACES, "before", b"\xff", expect=record.version, now=0)
    await instance.namespaces.create(CreateNamespace(name="beside"))  # the counter says what is free
    await set_counter(instance, None)
    with pytest.raises(Conflict, match=r"shard counter is lost, and 1 namespace record cannot.*doctor"):
        await instance.namespaces.create(CreateNamespace(name="after"))


async def set_counter(instance: Instance, value: bytes | None) -> None:
    record = await instance.store.get_record(SEQUENCES, SHARDS, now=0)
    assert record is not None
    if value is None:
        await instance.store.delete_record(SEQUENCES, SHARDS, expect=record.version, now=0)
    else:
        await instance.store.put_record(SEQUENCES, SHARDS, value, expect=record.version, now=0)


def test_a_timer_in_a_namespace_of_which_a_lone_instance_was_never_told_is_sent() -> None:
    async def main(world: World) -> None:
        sent: list[str] = []

        async def handler(timer: Timer) -> None:
            sent.append(timer.namespace)

        async with world.running(lease_seconds=6.0, renew_seconds=2.0, look_seconds=1.0) as instance:
            instance.timers_assembly.carrier.handlers["h"] = handler
            await asyncio.sleep(10)
            other = service(world.store, world.clock)  # as after an answer that was lost, too
            await other.create(CreateNamespace(name="x"))
            await world.store.write([Put(due_now(await other.find("x"), world.clock.now_ms()), 0)])
            await asyncio.sleep(5)
        assert sent == ["x"]

    simulate_world(main)


def due_now(namespace: Namespace, now: int) -> Timer:
    key = namespace.key_of("t")
    detail = Detail(execute_at=now, callback_url="handler:h", delivery_id="m", created_at=now, updated_at=now)
    return Timer(
        shard_id=key.shard_id,
        uuid=key.uuid,
        namespace=namespace.name,
        timer_id="t",
        due_at=now,
        version=7,
        detail=detail,
    )
