"""The store on MongoDB: a replica set or a sharded cluster, version 5.0 or newer, shared by any number of instances.

    store        the verbs
    conditional  single-document writes with exact verdicts, many in one command
    fenced       begin and finish: one transaction per group, with a write to every shard document it relies on
    ownership    claims and releases; a claim ends the open transactions of the owner that it deposes
    queries      reads, which see what a majority of the servers holds
    documents    values to documents and back
    schema       the numbered migrations
    connection   how the client is set up, and which errors mean what

All collections begin with `mainspring_` and live in the database that the URL names. Writes are acknowledged by
a majority, reads come from the primary. All instances connect as one user: only its own user can end a session.
"""

from mainspring.stores.mongodb.store import MongoDBStore

__all__ = ["MongoDBStore"]
