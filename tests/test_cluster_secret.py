"""The secret of a cluster: one that nobody could have made is none."""

from __future__ import annotations

from random import Random

import pytest

from mainspring import unreadable
from mainspring.clock import SystemClock
from mainspring.cluster_secret import CLUSTER, read_cluster_secret
from mainspring.stores.memory import MemoryStore


async def test_the_secret_is_made_once_and_the_same_for_all() -> None:
    clock = SystemClock()
    store = MemoryStore(clock)
    first = await read_cluster_secret(store, clock, Random(1))
    assert await read_cluster_secret(store, clock, Random(2)) == first


@pytest.mark.parametrize("value", [b"", b" ", b"\x7b\xff", b"short", b"x" * 43 + b"\n"])
async def test_a_secret_that_is_empty_or_cannot_be_read_is_replaced_and_told_of(value: bytes) -> None:
    unreadable.forget()
    clock = SystemClock()
    store = MemoryStore(clock)
    await store.put_record(CLUSTER, "secret", value, expect=0, now=clock.now_ms())
    secret = await read_cluster_secret(store, clock, Random(1))
    assert len(secret) == 43
    assert secret.encode() != value
    assert await read_cluster_secret(store, clock, Random(2)) == secret
    assert [(one.kind, one.name) for one in unreadable.known()] == [(CLUSTER, "secret")]
