"""The embedded store: one SQLite file in WAL mode, shared by any number of processes on one machine.

    store        the verbs, on the event loop; every call becomes a request
    worker       a committer that is a thread
    writer       one group, one transaction: look, decide, apply
    queries      reads, each on a connection of its own thread
    checkpoint   moves the WAL into the database without stopping the writer
    rows         values to columns and back; `shard_rows` those of shards
    timer_pages  timers as one JSON text, because that is fast
    files        whether the files are still those that were opened, and nobody else has written into them
    connection   how a connection is set up, and which errors mean "unavailable"
    schema       the numbered migrations
    forks        files that were open when this process was forked
    descriptors  those that SQLite already holds

SQL works on whole groups, with keys and answers as one JSON text: a connection releases the interpreter lock
at every step, and with a busy event loop, getting it back for every row costs more than the row.
"""

from mainspring.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
