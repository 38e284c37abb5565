"""Every server the tests know, by the scheme of its URLs; those that are slow to start come first."""

from __future__ import annotations

from tests.servers.cassandra import Cassandra
from tests.servers.chromium import Chromium
from tests.servers.dynamodb import DynamoDB
from tests.servers.mongodb import MongoDB
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis
from tests.servers.server import Server

SERVERS: dict[str, type[Server]] = {
    kind.name: kind for kind in (Cassandra, MySQL, RabbitMQ, MongoDB, DynamoDB, PostgreSQL, Chromium, Redis)
}
