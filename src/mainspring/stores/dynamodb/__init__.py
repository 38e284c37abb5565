"""The store in DynamoDB: three tables with a common prefix, billed on demand.

    store        the verbs of both contracts
    address      what a store URL says
    client       requests, their deadline, and which errors mean "unavailable"
    schema       the tables, in numbered migrations
    items        values to items and back
    statements   single-row conditional writes, in shared batches: users' writes and claims
    fenced       transactions under the fence: begin and finish
    timers       reads of timers, shards and history
    records      the record contract
    server_time  what the Date headers of the answers say about the time

What DynamoDB makes different from the other stores:

- **All or nothing** holds for each item of `write`, and for each transaction of at most 100 actions of `begin` and
  `finish`, not for a longer batch: even within one shard, a part may have been written while another is UNAVAILABLE.
- **Size.** A row lives twice, in the table and in its index, and both count: about 195 KB for a timer with all its
  fields. A shard holds at most 10 GB. A record holds at most 400 KB.
- **Regions.** Global tables are refused: conditions are evaluated in one region.
- **Permissions.** Besides the item and query actions, a role needs `dynamodb:PartiQLInsert` and
  `PartiQLUpdate`, and for the first start `CreateTable`, `DescribeTable`,
  `DescribeTimeToLive` and `UpdateTimeToLive`.
"""

from mainspring.clock import Clock
from mainspring.stores.dynamodb.address import address_from_url
from mainspring.stores.dynamodb.store import DynamoDBStore

__all__ = ["DynamoDBStore", "dynamodb_store"]


def dynamodb_store(url: str, *, clock: Clock) -> DynamoDBStore:
    """The store that `url` names, not yet opened."""
    return DynamoDBStore(address_from_url(url), clock=clock)
