"""Transactions of programs that stay open while a namespace gets more shards, or is deleted, on a real database."""

from __future__ import annotations

import asyncio

import asyncpg  # type: ignore[import-untyped]
import pytest

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.errors import Conflict, NotFound, StoreUnavailable
from mainspring.namespaces.messages import CreateNamespace, DeleteNamespace, ReshardNamespace
from mainspring.timers.messages import CreateTimer, TimerRef
from mainspring.transactional.writer import TimerWriter
from tests.servers.postgresql import PostgreSQL

pytestmark = [pytest.mark.slow, pytest.mark.server("postgresql")]  # each waits for the ten seconds

TWICE = TimerRef(namespace="busy", timer_id="twice")


async def test_a_delete_waits_for_nobody_who_holds_the_row_in_the_earlier_shards_and_is_refused(
    postgresql: PostgreSQL,
) -> None:
    url = postgresql.fresh()
    late, holder = await asyncpg.connect(url), await asyncpg.connect(url)
    async with Instance(Config(store=url), allow_handlers=True) as instance:
        await instance.namespaces.create(CreateNamespace(name="busy", shard_count=4))
        committing, holding = late.transaction(), holder.transaction()
        await committing.start()
        await TimerWriter(namespace="busy").acreate(late, "twice", delay_seconds=3600, handler="h")
        asked = ReshardNamespace(name="busy", shard_count=32)
        while not (await instance.reshard_namespace(asked)).active:
            pass
        newer = CreateTimer(namespace="busy", timer_id="twice", delay_seconds=7200, callback_url="https://example.com/")
        await instance.timers.create(newer)
        await committing.commit()
        keys = (await instance.namespaces.find("busy")).keys_of("twice")
        assert None not in await instance.store.get(keys)
        await holding.start()
        await holder.execute(
            "SELECT 1 FROM mainspring_timers WHERE shard_id = $1 AND uuid = $2 FOR UPDATE",
            keys[1].shard_id,
            keys[1].uuid,
        )
        with pytest.raises(StoreUnavailable):
            await instance.timers.delete(TWICE)
        assert (await instance.timers.get(TWICE)).callback_url == newer.callback_url
        await holding.rollback()
        await instance.timers.delete(TWICE)
        assert await instance.store.get(keys) == [None, None]
        with pytest.raises(NotFound):
            await instance.timers.get(TWICE)
    await late.close()
    await holder.close()


async def test_a_transaction_that_commits_during_a_deletion_without_force_calls_it_off(postgresql: PostgreSQL) -> None:
    url = postgresql.fresh()
    late = await asyncpg.connect(url)
    async with Instance(Config(store=url), allow_handlers=True) as instance:
        await instance.namespaces.create(CreateNamespace(name="trial", shard_count=4))
        committing = late.transaction()
        await committing.start()
        await TimerWriter(namespace="trial").acreate(late, "order-1", delay_seconds=3600, handler="h")

        async def delete() -> None:
            while not (await instance.delete_namespace(DeleteNamespace(name="trial"))).deleted:
                pass

        deleting = asyncio.create_task(delete())
        await asyncio.sleep(5)
        await committing.commit()
        with pytest.raises(Conflict, match="has timers"):
            await deleting
        assert (await instance.timers.get(TimerRef(namespace="trial", timer_id="order-1"))).timer_id == "order-1"
    await late.close()
