"""Rights and credentials that are lost while a store is open: each call is refused for now, and works when they return.

While a store is opened the same refusals mean a wrong configuration.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import cassandra.cluster as cassandra_driver  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import (  # type: ignore[import-untyped]
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from cassandra import AuthenticationFailed, Unauthorized
from pymongo import MongoClient

from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.model import Shard
from mainspring.store import Begin, Put, RecordStore, Store, Verdict
from mainspring.stores.cassandra import connection as cassandra_connection
from mainspring.stores.dynamodb.address import address_from_url
from mainspring.stores.dynamodb.client import Client
from mainspring.stores.mongodb import MongoDBStore
from mainspring.stores.redis import redis_store
from mainspring.stores.sql.schema import MIGRATIONS
from mainspring.stores.sqlite.connection import Database as SQLiteDatabase
from mainspring.testing.timer_samples import NOW, create, key_of, timer
from tests.servers.mongodb import MongoDB
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL
from tests.servers.redis import Redis
from tests.stores.sql_databases import Database

TABLES = [table.name for migration in MIGRATIONS for table in migration.tables]


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def assert_unavailable(store: Store) -> None:
    """Every kind of call, several at once: what is grouped must be told to each caller."""
    calls = (
        store.write([Put(timer("refused"), 0)]),
        store.write([Put(timer("refused too"), 1)]),
        store.get([key_of("before")]),
        store.next_due([0]),
        store.begin([Begin(key_of("before"), 0, 1)]),
        store.shards([0]),
        store.claim_shards([Shard(0, 0, "me")]),
        *record_calls(store),
    )
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * len(answers)
    assert all("canary" not in str(answer) for answer in answers)


def record_calls(store: RecordStore) -> Sequence[Any]:
    return (
        store.put_record("c", "k", b"", expect=0, now=NOW),
        store.get_record("c", "k", now=NOW),
        store.scan_records("c", now=NOW),
    )


async def assert_works(store: Store) -> None:
    assert await store.get([key_of("before")]) == [timer("before")]
    assert await store.write([Put(timer("after"), 0)]) == [Verdict.APPLIED]
    assert await store.put_record("c", "k", b"", expect=0, now=NOW) is not None
    assert await store.claim_shards([Shard(0, 0, "me")]) == [Verdict.APPLIED]


# PostgreSQL and MySQL


async def test_rights_that_are_revoked_and_granted_again_need_no_restart_on_postgresql(postgresql: PostgreSQL) -> None:
    url = postgresql.fresh()
    place = url.rpartition("/")[2]
    await Database(url).store().migrate()
    user = f"u_{place}"
    tables = ", ".join(f"mainspring_{table}" for table in TABLES)
    postgresql.execute(
        f"CREATE ROLE {user} LOGIN; GRANT SELECT ON mainspring_migrations TO {user}; GRANT ALL ON {tables} TO {user}",
        database=place,
    )
    async with opened(Database(url.replace("postgres@", f"{user}:canary@")).store()) as store:
        await create(store, timer("before"))
        postgresql.execute(f"REVOKE ALL ON {tables} FROM {user}", database=place)
        await assert_unavailable(store)
        postgresql.execute(f"GRANT ALL ON {tables} TO {user}", database=place)
        await assert_works(store)


async def test_a_user_who_may_not_log_in_any_more_is_a_state_of_the_server_on_postgresql(
    postgresql: PostgreSQL,
) -> None:
    url = postgresql.fresh()
    user = f"u_{url.rpartition('/')[2]}"
    postgresql.execute(f"CREATE ROLE {user} LOGIN SUPERUSER")
    end = f"SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{user}'"
    async with opened(Database(url.replace("postgres@", f"{user}@")).store()) as store:
        await create(store, timer("before"))
        postgresql.execute(f"ALTER ROLE {user} NOLOGIN")
        postgresql.execute(end)
        await asyncio.sleep(0.05)
        await assert_unavailable(store)
        postgresql.execute(f"ALTER ROLE {user} LOGIN")
        await assert_works(store)


async def test_rights_that_are_missing_at_the_start_are_a_wrong_setting_on_postgresql(postgresql: PostgreSQL) -> None:
    url = postgresql.fresh()
    user = f"u_{url.rpartition('/')[2]}"
    postgresql.execute(f"CREATE ROLE {user} LOGIN")
    store = Database(url.replace("postgres@", f"{user}@")).store()
    with pytest.raises(ConfigError, match="permission denied"):
        await store.open()


async def test_rights_that_are_revoked_and_granted_again_need_no_restart_on_mysql(mysql: MySQL) -> None:
    url = mysql.fresh()
    place = url.rpartition("/")[2]
    await Database(url).store().migrate()
    user = f"'u_{place}'@'127.0.0.1'"
    mysql.execute(f"CREATE USER {user} IDENTIFIED BY 'canary'; GRANT SELECT ON {place}.mainspring_migrations TO {user}")
    rights = [f"{{}} SELECT, INSERT, UPDATE, DELETE ON {place}.mainspring_{table} {{}} {user}" for table in TABLES]
    grant, revoke = (
        ";".join(right.format(*words) for right in rights) for words in (("GRANT", "TO"), ("REVOKE", "FROM"))
    )
    mysql.execute(grant)
    async with opened(Database(url.replace("root@", f"u_{place}:canary@")).store()) as store:
        await create(store, timer("before"))
        mysql.execute(revoke)
        await assert_unavailable(store)
        mysql.execute(grant)
        await assert_works(store)


async def test_a_password_that_was_changed_is_a_state_of_the_server_on_mysql(mysql: MySQL) -> None:
    url = mysql.fresh()
    place = url.rpartition("/")[2]
    user = f"'u_{place}'@'127.0.0.1'"
    mysql.execute(f"CREATE USER {user} IDENTIFIED BY 'canary'; GRANT ALL ON {place}.* TO {user}")
    async with opened(Database(url.replace("root@", f"u_{place}:canary@")).store()) as store:
        await create(store, timer("before"))
        mysql.execute(f"SET PASSWORD FOR {user} = PASSWORD('other')")
        mysql.execute(f"KILL USER 'u_{place}'")
        await asyncio.sleep(0.05)
        await assert_unavailable(store)
        mysql.execute(f"SET PASSWORD FOR {user} = PASSWORD('canary')")
        await assert_works(store)


# MongoDB


class GuardedMongoDB(MongoDB):
    """Lets nobody in without a password, once it has a first user."""

    _guarded = False

    def command(self) -> Sequence[str]:
        return [*super().command(), *(["--keyFile", f"{self.directory}/key"] if self._guarded else [])]

    def guard(self) -> None:
        """Make the superuser, and start again with a guard."""
        key = self.directory / "key"
        key.write_text(secrets.token_hex(32))
        os.chmod(key, 0o600)
        with MongoClient[dict[str, Any]](self.port_url("")) as client:
            client.admin.command("createUser", "root", pwd="root", roles=["root"])
        self.stop()
        self._guarded = True
        self.start()
        deadline = time.monotonic() + 20
        while not self.admin("hello")["isWritablePrimary"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def port_url(self, user: str) -> str:
        return f"mongodb://{user}127.0.0.1:{self.port}/?directConnection=true"

    def admin(self, command: str, value: object = 1, *, database: str = "admin", **options: Any) -> dict[str, Any]:
        with MongoClient[dict[str, Any]](self.port_url("root:root@")) as client:
            return client[database].command(command, value, **options)


@pytest.fixture(scope="module")
def guarded(fleet: object) -> Iterator[GuardedMongoDB]:
    with GuardedMongoDB() as server:
        server.obtain()
        server.start()
        server.guard()
        yield server


def _mongodb_url(guarded: GuardedMongoDB) -> tuple[str, str]:
    url = guarded.fresh()
    place = url.rpartition("/")[2].partition("?")[0]
    return url.replace("mongodb://", "mongodb://user:canary@") + f"&authSource={place}", place


@pytest.mark.server("mongodb")
async def test_rights_that_are_revoked_and_granted_again_need_no_restart_on_mongodb(guarded: GuardedMongoDB) -> None:
    url, place = _mongodb_url(guarded)
    guarded.admin("createUser", "user", database=place, pwd="canary", roles=["readWrite"])
    async with opened(MongoDBStore(url)) as store:
        await create(store, timer("before"))
        guarded.admin("updateUser", "user", database=place, roles=[])
        await assert_unavailable(store)
        guarded.admin("updateUser", "user", database=place, roles=["readWrite"])
        await assert_works(store)


@pytest.mark.server("mongodb")
async def test_a_wrong_password_or_missing_rights_at_the_start_are_a_wrong_setting_on_mongodb(
    guarded: GuardedMongoDB,
) -> None:
    url, place = _mongodb_url(guarded)
    guarded.admin("createUser", "user", database=place, pwd="canary", roles=[])
    for wrong in (url, url.replace("canary", "canary-2")):
        with pytest.raises(ConfigError, match="rejects this user") as caught:
            await MongoDBStore(wrong).open()
        assert "canary" not in str(caught.value)


# Redis


async def test_rights_that_are_revoked_and_granted_again_need_no_restart_on_redis(redis: Redis) -> None:
    store = redis_store(redis.fresh().replace("//", "//someone:canary@"))
    redis.execute("ACL", "SETUSER", "someone", "on", ">canary", "~*", "+@all")
    try:
        await store.open()
        redis.execute("ACL", "SETUSER", "someone", "-@all")
        answers = await asyncio.gather(*record_calls(store), return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * len(answers)
        redis.execute("ACL", "SETUSER", "someone", "+@all")
        assert await store.put_record("c", "k", b"", expect=0, now=NOW) is not None
        await store.close()
    finally:
        redis.execute("ACL", "DELUSER", "someone")


# The others, by what their libraries raise


@pytest.mark.parametrize(
    "error",
    [
        Unauthorized("User me has no MODIFY permission on <table k.mainspring_timers>"),
        AuthenticationFailed("Provided username me and/or password are incorrect"),
        cassandra_driver.NoHostAvailable("None", {"127.0.0.1": AuthenticationFailed("incorrect")}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_refused_credentials_are_a_matter_of_configuration_at_the_start_only_on_cassandra(error: Exception) -> None:
    with pytest.raises(StoreUnavailable, match="Expected"), cassandra_connection.mapping_errors():
        raise error
    with pytest.raises(ConfigError, match="credentials"), cassandra_connection.mapping_errors(at_start=True):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        NoCredentialsError(),
        PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
        ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}, "GetItem"),
        ClientError({"Error": {"Code": "ExpiredTokenException", "Message": "expired"}}, "GetItem"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_refused_credentials_are_a_matter_of_configuration_at_the_start_only_on_dynamodb(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(**_: object) -> None:
        raise error

    client = Client(address_from_url("dynamodb://eu-west-1"))
    monkeypatch.setattr(client, "_client", SimpleNamespace(get_item=refuse))
    with pytest.raises(ConfigError, match="credentials"):
        await client.call("get_item")
    client.trust_credentials()
    with pytest.raises(StoreUnavailable, match="Expected"):
        await client.call("get_item")
    await client.close()


@pytest.mark.parametrize("error", [apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError, apsw.IOError])
def test_a_file_that_may_not_be_used_any_more_is_unavailable_on_sqlite(error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"x\.db"), SQLiteDatabase(f"{tmp_path}/x.db", 10).mapping_errors():
        raise error("no")
