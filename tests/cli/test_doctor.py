"""`mainspring admin doctor` and `drop-namespace`, on stores that no server has open."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from mainspring.clock import SystemClock
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.idempotency.entries import COLLECTION, Entry, EntryState, Header, encoded
from mainspring.jobs.messages import CreateJob
from mainspring.kernel.ownership import INSTANCES
from mainspring.namespaces.messages import CreateNamespace
from mainspring.namespaces.service import NAMESPACES, NamespaceService
from mainspring.store import Store
from mainspring.stores import store_from_url
from mainspring.testing.timer_samples import create, timer
from tests.cli.conftest import run_alone


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store that a server has used, with three timers and a namespace of its own."""
    url = f"sqlite:///{tmp_path / 'used.db'}"

    async def use() -> None:
        config = Config(store=url, data_dir=str(tmp_path), drain_seconds=0.2)
        async with Instance(config) as instance:
            await instance.namespaces.create(CreateNamespace(name="big", shard_count=64))
            await create(instance.store, *(timer(name, due_at=2**50) for name in "abc"))

    async def forget_who_was_here(store: Store) -> None:
        """A slow machine may not have let the instance say that it left."""
        now = await store.time()
        for record in await store.scan_records(INSTANCES, now=now):
            await store.delete_record(INSTANCES, record.key, expect=record.version, now=now)

    asyncio.run(use())
    with_store(url, forget_who_was_here)
    return url


@pytest.mark.parametrize("command", [("doctor",), ("drop-namespace", "big")])
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "sub" / "nothing.db"
    done = run_alone("admin", *command, "--store", f"sqlite:///{path}")
    assert done.exit_code == 3
    assert f"There is no database at {path}" in done.output
    assert not path.parent.exists()


def test_a_file_that_cannot_even_be_opened_is_a_finding(url: str) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    path.write_bytes(path.read_bytes()[:20_000])
    done = run_alone("admin", "doctor", "--store", url, "--output", "json")
    assert done.exit_code == 1
    assert json.loads(done.output)["damage"]


def with_store(url: str, work: Callable[[Store], Awaitable[None]]) -> None:
    async def run() -> None:
        store = store_from_url(url, clock=SystemClock())
        await store.open()
        await work(store)
        await store.close()

    asyncio.run(run())


def test_a_healthy_store_has_nothing_to_tell(url: str) -> None:
    result = run_alone("admin", "doctor", "--store", url, "--output", "json")
    assert result.exit_code == 0
    findings = json.loads(result.stdout)
    assert findings["healthy"]
    assert findings["timers"] == 3
    assert findings["shards"] == 16 + 64
    assert findings["unownedShards"] == findings["unreadable"] == findings["damage"] == []
    assert "nothing" in run_alone("admin", "doctor", "--store", url).stdout.partition("FOUND")[2]


def test_rows_of_jobs_are_no_timers(url: str, tmp_path: Path) -> None:
    async def use() -> None:
        async with Instance(Config(store=url, data_dir=str(tmp_path), drain_seconds=0.2)) as instance:
            await instance.jobs.create(CreateJob(name="job", schedule="@yearly", url="https://example.com/"))
            await asyncio.sleep(0)

    asyncio.run(use())
    findings = json.loads(run_alone("admin", "doctor", "--store", url, "--output", "json").stdout)
    assert (findings["namespaces"], findings["timers"], findings["internalRows"]) == (2, 3, 1)


def test_what_damage_keeps_from_being_counted_is_not_told_as_nothing(url: str) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    for content in (b"no database at all", b""):
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
        path.write_bytes(content)
        result = run_alone("admin", "doctor", "--store", url)
        assert result.exit_code == 1
        assert "damage" in result.stdout
        counts = result.stdout.partition("FOUND")[0].splitlines()[1:]
        assert {line.rpartition("  ")[2].strip() for line in counts if line.strip()} == {"unknown"}
        assert path.read_bytes() == content


def test_a_store_that_nobody_keeps_is_refused() -> None:
    result = run_alone("admin", "doctor", "--store", "memory://")
    assert (result.exit_code, "a persistent store" in result.stderr) == (2, True)


def test_the_doctor_names_what_cannot_be_read_and_removes_it_when_told_to(url: str) -> None:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("UPDATE timers SET detail = CAST(x'7bff' AS TEXT) WHERE timer_id = 'b'")
    connection.execute("UPDATE records SET value = x'7b' WHERE collection = 'namespace' AND key = 'big'")
    connection.close()
    found = run_alone("admin", "doctor", "--store", url)
    assert found.exit_code == 1
    assert "cannot be read" in found.stdout
    assert "namespace big" in found.stdout
    findings = json.loads(run_alone("admin", "doctor", "--store", url, "--output", "json").stdout)
    assert sorted(one["kind"] for one in findings["unreadable"]) == ["namespace", "timer"]
    removed = run_alone("admin", "doctor", "--store", url, "--remove-unreadable")
    assert "Removed 1 of 2 that cannot be read" in removed.stderr  # a namespace has timers that would be lost with it
    left = json.loads(run_alone("admin", "doctor", "--store", url, "--output", "json").stdout)
    assert [one["kind"] for one in left["unreadable"]] == ["namespace"]


def test_the_doctor_names_answers_kept_for_a_key_that_cannot_be_read_and_leaves_them_alone(url: str) -> None:
    async def keep(store: Store) -> None:
        now = await store.time()
        entry = Entry(Header(state=EntryState.DONE, fingerprint="f"), b"\xff any bytes")
        for key, value in (("good", encoded(entry)), ("bad", b'{"state":"dome"}\n'), ("worse", b"\xff")):
            await store.put_record(COLLECTION, key, value, expect=0, now=now)

    with_store(url, keep)
    result = run_alone("admin", "doctor", "--store", url, "--remove-unreadable", "--output", "json")
    assert result.exit_code == 1
    found = {(one["kind"], one["name"]) for one in json.loads(result.stdout)["unreadable"]}
    assert found == {(COLLECTION, "bad"), (COLLECTION, "worse")}
    assert "Removed 0 of 2 that cannot be read" in result.stderr  # nobody knows whether their work was done


def test_the_doctor_has_sqlite_check_its_file(url: str) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'timers_by_key'").get
    connection.close()
    data = bytearray(path.read_bytes())
    assert isinstance(root, int)
    data[(root - 1) * 4096 + 8 : (root - 1) * 4096 + 200] = b"\xff" * 192
    path.write_bytes(data)
    result = run_alone("admin", "doctor", "--store", url)
    assert result.exit_code != 0
    assert "damage" in result.stdout or "malformed" in result.stderr


def test_the_doctor_tells_of_shards_whose_owner_is_not_alive_while_others_are(url: str) -> None:
    async def leave_a_lease(store: Store) -> None:
        now = await store.time()
        lease = b'{"instance": "here"}'
        await store.put_record("instance", "here", lease, expect=0, now=now, expires_at=now + 60_000)

    with_store(url, leave_a_lease)
    result = run_alone("admin", "doctor", "--store", url)
    assert result.exit_code == 1
    assert "shards without an owner" in result.stdout
    assert "and 60 more" in result.stdout


def test_a_namespace_without_timers_is_dropped_with_its_shards(url: str) -> None:
    result = run_alone("admin", "drop-namespace", "big", "--store", url)
    assert result.exit_code == 0, result.stderr
    assert "Removed big and its 64 shards." in result.stderr
    assert json.loads(run_alone("admin", "doctor", "--store", url, "--output", "json").stdout)["shards"] == 16
    assert run_alone("admin", "drop-namespace", "big", "--store", url).exit_code == 3


def test_a_namespace_is_not_dropped_beside_a_server_nor_with_timers_nor_if_every_start_makes_it(url: str) -> None:
    refused = run_alone("admin", "drop-namespace", "default", "--store", url)
    assert refused.exit_code == 5
    assert "every start would create it again" in refused.stderr

    async def fill(store: Store) -> None:
        record = await store.get_record(NAMESPACES, "big", now=await store.time())
        assert record is not None
        first = json.loads(record.value)["firstShard"]
        await create(store, timer("kept", shard_id=first + 3, due_at=2**50))

    with_store(url, fill)
    refused = run_alone("admin", "drop-namespace", "big", "--store", url)
    assert refused.exit_code == 5
    assert "has timers" in refused.stderr

    async def leave_a_lease(store: Store) -> None:
        now = await store.time()
        lease = b'{"instance": "here"}'
        await store.put_record("instance", "here", lease, expect=0, now=now, expires_at=now + 60_000)

    with_store(url, leave_a_lease)
    refused = run_alone("admin", "drop-namespace", "big", "--store", url)
    assert refused.exit_code == 5
    assert "1 instance is running" in refused.stderr


def test_a_namespace_is_not_dropped_with_a_timer_that_cannot_be_read(url: str) -> None:
    async def fill(store: Store) -> None:
        record = await store.get_record(NAMESPACES, "big", now=await store.time())
        assert record is not None
        first = json.loads(record.value)["firstShard"]
        await create(store, timer("damaged", shard_id=first + 3, due_at=2**50))

    with_store(url, fill)
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("UPDATE timers SET detail = CAST(x'7bff' AS TEXT) WHERE timer_id = 'damaged'")
    connection.close()
    refused = run_alone("admin", "drop-namespace", "big", "--store", url)
    assert refused.exit_code == 5
    assert "1 timer that cannot be read" in refused.stderr
    assert (
        "Removed 1 of 1 that cannot be read"
        in run_alone("admin", "doctor", "--store", url, "--remove-unreadable").stderr
    )
    assert run_alone("admin", "drop-namespace", "big", "--store", url).exit_code == 0


def test_a_namespace_that_is_made_again_has_no_version_of_the_one_that_was_dropped(url: str) -> None:
    versions: list[int] = []

    async def look(store: Store) -> None:
        record = await store.get_record(NAMESPACES, "big", now=await store.time())
        assert record is not None
        versions.append(record.version)

    async def make(store: Store) -> None:
        await NamespaceService(
            records=store, clock=SystemClock(), randomness=random.SystemRandom(), created=lambda: None
        ).create(CreateNamespace(name="big", shard_count=64))

    with_store(url, look)
    assert run_alone("admin", "drop-namespace", "big", "--store", url).exit_code == 0
    with_store(url, make)
    with_store(url, look)
    assert abs(versions[0] - versions[1]) > 1000


def test_one_bad_shard_secret_or_version_ends_neither_a_start_nor_the_doctor(url: str, tmp_path: Path) -> None:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("UPDATE shards SET owner = CAST(x'22ff22' AS TEXT) WHERE shard_id = 3")
    connection.execute("UPDATE shards SET version = 9223372036854775807 WHERE shard_id = 4")
    connection.execute("UPDATE timers SET version = 9223372036854775807 WHERE timer_id = 'b'")
    connection.execute("UPDATE records SET value = x'' WHERE collection = 'cluster'")
    connection.close()

    def kinds() -> list[str]:
        found = run_alone("admin", "doctor", "--store", url, "--output", "json")
        assert found.exit_code == 1
        return sorted(one["kind"] for one in json.loads(found.stdout)["unreadable"])

    assert kinds() == ["cluster", "shard", "shard", "timer"]

    async def start() -> None:
        async with Instance(Config(store=url, data_dir=str(tmp_path), drain_seconds=0.2)) as instance:
            assert len(instance.cluster_secret) == 43
            assert 3 in instance.ownership.fences
            assert 4 not in instance.ownership.fences
            await instance.ready()

    asyncio.run(start())
    assert kinds() == ["shard", "timer"]
