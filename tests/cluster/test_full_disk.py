"""A database whose disk is full: creates are refused while it lasts, and nothing that was acknowledged is lost.

The disk is a limit to the size of the server's files, which needs no mount and no rights. A write beyond it fails at
the same places of the server as one to a full disk, and, in PostgreSQL, with the same error.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from mainspring.client.transport import AsyncTransport
from mainspring.delivery.call import Call, Reply
from mainspring.testing.target import TargetServer
from mainspring.testing.torture.process import TOKEN, ServerProcess, serving
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL
from tests.servers.server import Server
from tests.support.patience import until, until_gone

DUE = 20
CREATES_LIMIT = 3000


class SmallPostgreSQL(PostgreSQL):
    """Its log is in files of 1 MB, below the limit: without a log it could not even refuse."""

    initdb_options: ClassVar[Sequence[str]] = ("--wal-segsize=1",)


class SmallMySQL(MySQL):
    def command(self) -> Sequence[str]:
        # A signal tells of the limit, and the default is to die of it. What is ignored here stays ignored there.
        ignoring = ["/bin/sh", "-c", 'trap "" XFSZ; exec "$@"', "sh"]
        return [*ignoring, *super().command(), "--innodb-log-file-size=8M"]


class Disk(NamedTuple):
    kind: type[Server]
    file_bytes: int
    """Above all files that the server has from the beginning."""
    payload_bytes: int
    """Such that a begun row needs new room: PostgreSQL keeps texts beside the row when they are longer."""
    says: str


DISKS = {
    "postgresql": Disk(SmallPostgreSQL, 2_000_000, 1_500, r"could not extend file .+disk space"),
    "mysql": Disk(SmallMySQL, 16_000_000, 100_000, "The table 'mainspring_timers' is full"),
}


@pytest.fixture(params=server_params(*DISKS))
def disk(request: pytest.FixtureRequest) -> Disk:
    return DISKS[request.param]


@pytest.fixture
def database(disk: Disk, fleet: Fleet) -> Iterator[Server]:
    with fleet.start(disk.kind) as database:
        yield database


class Creating:
    """Creates as plain HTTP requests, with a payload of random text that cannot be made smaller."""

    def __init__(self, transport: AsyncTransport, server: ServerProcess, payload_bytes: int) -> None:
        self._transport = transport
        self._server = server
        self._payload_bytes = payload_bytes

    async def create(self, timer_id: str, url: str, delay_seconds: float) -> Reply:
        payload = secrets.token_hex(self._payload_bytes // 2)
        body = {"timerId": timer_id, "delaySeconds": delay_seconds, "callbackUrl": url, "payload": payload}
        headers = (("content-type", "application/json"), ("authorization", f"Bearer {TOKEN}"))
        path = f"{self._server.url}/v1/timers/create"
        return await self._transport.send(Call("POST", path, headers, json.dumps(body).encode(), 20_000))

    async def until_refused(self, acknowledged: set[str], *, at_once: int) -> list[Reply]:
        """Create so many at once until there is no room for them: the refusals."""
        for _ in range(CREATES_LIMIT // at_once):
            names = [f"kept-{secrets.token_hex(8)}" for _ in range(at_once)]
            replies = await asyncio.gather(*(self.create(name, "http://127.0.0.1:9/", 3600) for name in names))
            acknowledged |= {name for name, reply in zip(names, replies, strict=True) if reply.status == 200}
            if refused := [reply for reply in replies if reply.status != 200]:
                return refused
        raise AssertionError("Expected a full disk to refuse a create at some time")


@asynccontextmanager
async def creating(server: ServerProcess, payload_bytes: int) -> AsyncIterator[Creating]:
    transport = AsyncTransport()
    await transport.open()
    try:
        yield Creating(transport, server, payload_bytes)
    finally:
        await transport.close()


async def test_a_full_disk_refuses_creates_and_loses_nothing_and_room_for_more_is_found_without_a_restart(
    disk: Disk, database: Server, tmp_path: Path, target: TargetServer
) -> None:
    acknowledged: set[str] = set()
    async with (
        serving(tmp_path, store=database.fresh()) as server,
        server.client() as client,
        creating(server, disk.payload_bytes) as some,
    ):
        for number in range(DUE):
            assert (await some.create(f"due{number}", target.url, 3)).status == 200
        database.limit_files(disk.file_bytes)
        # Where there is no room for many, there may still be some for one.
        refused = [reply for at_once in (20, 1) for reply in await some.until_refused(acknowledged, at_once=at_once)]
        for reply in refused:
            assert reply.status == 503
            assert reply.headers["content-type"] == "application/problem+json"
            problem = json.loads(reply.body)
            assert problem["code"] == "store_unavailable"
            assert re.search(disk.says, problem["detail"], re.DOTALL)

        async def engine_fails() -> bool | None:
            return True if "attempts cannot be begun" in server.log.read_text() else None

        await until(engine_fails, seconds=10, what="timers that come due and find no room")
        assert (await client.health()).status
        assert len(target.deliveries) < DUE

        database.limit_files(None)
        await target.wait_for(DUE, seconds=10)
        assert (await some.create("later", target.url, 0)).status == 200
        await target.wait_for(DUE + 1, seconds=10)
        for number in range(DUE):
            await until_gone(client, f"due{number}")
        await until_gone(client, "later")
        assert {view.timer_id async for view in client.timers.iterate(page_size=1000)} >= acknowledged
    assert set(target.deliveries.values()) == {1}
