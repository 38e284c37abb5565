"""The stores on a database server: PostgreSQL, and MySQL with its relatives MariaDB and TiDB.

    store        the verbs, each a request to a committer or a read
    bisection    which item a group failed for, so that it is refused alone
    writer       one group, one transaction: lock, look, decide, apply
    queries      what is read, and how
    reads        a bounded number of reads at a time, each run to its end
    statements   the SQL, written once
    dialect      where the databases differ: `Dialect` renders SQL, `Session` speaks to one connection
    postgresql   both for PostgreSQL, with asyncpg
    mysql        both for MySQL, with asyncmy
    pool         connections, and the one place where a failed one is discarded
    schema       the tables and the numbered migrations
    rows         values to columns and back
    address      what a URL says

**What is locked, and in which order.** Shard rows first, in the order of their numbers: shared by begin and finish,
exclusively by a claim, so that a claim waits for every open write under the older fence, and none starts after it.
Then timer rows and records, in the order of their keys. One order for everybody means no deadlocks. A row that does
not exist cannot be locked: when somebody else inserts it first, the group is rolled back and looks again.

**Why the primary key of a timer is (shard, uuid)** and the due order is a plain index: InnoDB locks the gaps around
entries of a unique secondary index, and writers of different rows would deadlock in small tables.
"""
