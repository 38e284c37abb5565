"""Cassandra and Scylla: a shard with everything in it is one partition, and every write to it is one conditional batch.

    store       the verbs, on the event loop
    committers  a committer for each partition: what arrives together for it becomes one group
    writer      one group, one conditional batch: look, decide, apply, or look again
    plan        what a group does to one shard: decided in order, without CQL
    reader      gets, due rows and history
    listing     one list over many shards, with filters
    floor       where the due rows of a shard begin, so that reads need not pass over the remains of fired timers
    records     the other contract: one conditional statement per write
    rows        the tables' columns and statements, values to columns and back
    connection  the driver's futures awaited, and which errors mean "unavailable"
    limits      how much one write may hold
    address     what a store URL says
    schema      the keyspace and the numbered migrations

Conditional writes (Paxos) order everything in a partition. A plain write beside them would escape that order, so there
are none. A claim is a conditional write to the same partition: its own round decides whatever a deposed owner had open,
which is committed before the claim or never.
"""

from mainspring.stores.cassandra.store import CassandraStore

__all__ = ["CassandraStore"]
