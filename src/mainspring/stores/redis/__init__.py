"""The record store in Redis or Valkey: no timers, because a timer must not be lost with a cache.

    store      the verbs of the record contract
    address    what a store URL says
    client     calls, their deadline, and which errors mean "unavailable"
    scripts    what a record is in Redis; every verb is one script, and a script is one step
    no_timers  the verbs of the timer contract, which are refused

A record is the plain string at `collection:key`, so that other programs can read and write it. Its version is in a
hash beside it. A listed collection has a sorted set of its keys. The keys of everything else that Mainspring keeps
start with `mainspring:`.

The scripts touch several keys at once, so this needs one primary (with replicas, if you like), not Redis Cluster.
A write is as durable as the server's `appendonly` and `appendfsync` make it.
"""

from mainspring.stores.redis.address import address_from_url
from mainspring.stores.redis.store import RedisStore

__all__ = ["RedisStore", "redis_store"]


def redis_store(url: str) -> RedisStore:
    """The store that `url` names, not yet opened."""
    return RedisStore(address_from_url(url))
