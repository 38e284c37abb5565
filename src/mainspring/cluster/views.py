"""What an instance says about the cluster it belongs to: who is alive, and who owns what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from mainspring.cluster.messages import InstancesView, InstanceView, ShardsView, ShardView
from mainspring.errors import StoreUnavailable
from mainspring.kernel.ownership import INSTANCES, Lease, read_lease
from mainspring.model import Namespace
from mainspring.store import RecordStore, TimerStore, all_records
from mainspring.unreadable import read_record
from mainspring.wire.instants import to_instant


async def instances_view(
    records: RecordStore, shards: ShardsView, *, now: int, is_dead: Callable[[Lease], bool]
) -> InstancesView:
    """The live instances, as of `shards`, which also says who answers."""
    owned = Counter(shard.owner for shard in shards.shards)
    views: list[InstanceView] = []
    async for record in all_records(records, INSTANCES, lambda: now):
        lease = read_record(INSTANCES, record, read_lease)
        if lease is not None and not lease.left and record.expires_at is not None and not is_dead(lease):
            views.append(
                InstanceView(
                    instance=lease.instance,
                    address=lease.address,
                    started_at=to_instant(lease.started_at),
                    lease_expires_at=to_instant(record.expires_at),
                    owned_shards=owned[lease.instance],
                    this=lease.instance == shards.instance,
                )
            )
    return InstancesView(instance=shards.instance, instances=tuple(views))


async def shards_view(timers: TimerStore, namespaces: Sequence[Namespace], *, instance: str) -> ShardsView:
    views: list[ShardView] = []
    for namespace in namespaces:
        for shard in await timers.shards(namespace.shards):
            if shard is None:
                raise StoreUnavailable("A part of the database that holds some of the shards cannot be reached")
            views.append(
                ShardView(shard_id=shard.shard_id, namespace=namespace.name, version=shard.version, owner=shard.owner)
            )
    return ShardsView(instance=instance, shards=tuple(views))
