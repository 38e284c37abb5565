"""What is wrong with a namespace is said of its field."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.config import Config
from mainspring.errors import Conflict, FieldError, InvalidInput
from mainspring.instance import Instance
from mainspring.stores import store_from_url
from mainspring.surroundings import Surroundings
from mainspring.timers.messages import CreateNamespace, UpdateNamespace
from mainspring.timers.namespaces import NamespaceService


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
        with pytest.raises(Conflict, match=r"at most 4200 shards in all .*shard_limit.*drop-namespace") as refused:
            await instance.namespaces.create(CreateNamespace(name="too-large", shard_count=256))
        assert [error.pointer for error in refused.value.errors] == ["/shardCount"]
        await instance.namespaces.create(CreateNamespace(name="small", shard_count=16))
        for number in range(6):  # the services' own are always made
            await instance.namespaces.system(f"mainspring.own{number}")


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
