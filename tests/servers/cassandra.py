"""Cassandra 5.0 from its published jars: one node, started as quickly as it can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, cast

from tests.servers.java import JAVA, obtain_java
from tests.servers.process import free_port
from tests.servers.server import Server
from tests.servers.sources import cached, debian_packages, run

_VERSION = "5.0.6"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mainspring.tests</groupId>
  <artifactId>cassandra</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId>
      <artifactId>cassandra-all</artifactId>
      <version>{_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

_CONFIG = """\
cluster_name: mainspring
num_tokens: 1
auto_bootstrap: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "127.0.0.1:{storage_port}"}}]
listen_address: 127.0.0.1
storage_port: {storage_port}
rpc_address: 127.0.0.1
native_transport_port: {port}
start_native_transport: true
commitlog_sync: {sync}
{period}
commitlog_segment_size: 8MiB
commitlog_total_space: 256MiB
auto_snapshot: false
incremental_backups: false
hinted_handoff_enabled: false
concurrent_reads: 8
concurrent_writes: 8
file_cache_size: 32MiB
memtable_heap_space: 128MiB
memtable_offheap_space: 64MiB
cdc_enabled: false
"""

_LOGGING = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
"""

# What its own start script opens to it on Java 17.
_EXPORTS = [
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
]
_OPENS = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.nio.charset",
    "java.base/java.nio.file.spi",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/java.util.concurrent.locks",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
]
_MODULES = [f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS]
_MODULES += [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS]


_SHARED = "emptied"
"""The keyspace of `empty`."""


class _Session(Protocol):
    def execute(self, statement: str) -> Iterable[tuple[str]]: ...


class _Cluster(Protocol):
    def connect(self) -> _Session: ...
    def shutdown(self) -> None: ...


class Cassandra(Server):
    name = "cassandra"
    _cluster: _Cluster | None = None
    _session: _Session | None = None

    def obtain(self) -> None:
        obtain_java()
        self._jars = cached(f"cassandra-{_VERSION}", _download) / "lib"

    def prepare(self) -> None:
        super().prepare()
        sync, period = ("batch", "") if self.durable else ("periodic", "commitlog_sync_period: 10s")
        config = _CONFIG.format(port=self.port, storage_port=free_port(), sync=sync, period=period)
        (self.directory / "cassandra.yaml").write_text(config)
        (self.directory / "logback.xml").write_text(_LOGGING)

    def command(self) -> Sequence[str]:
        [agent] = self._jars.glob("jamm-*.jar")
        machine = ["-Xms768m", "-Xmx768m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        settings = {
            "cassandra.config": f"file://{self.directory}/cassandra.yaml",
            "cassandra.storagedir": f"{self.directory}/data",
            "cassandra.jmx.local.port": str(free_port()),
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "0",
            "cassandra.superuser_setup_delay_ms": "0",
            "cassandra-foreground": "yes",
            "java.io.tmpdir": str(self.directory),
            "jdk.attach.allowAttachSelf": "true",
            "io.netty.tryReflectionSetAccessible": "true",
            "logback.configurationFile": f"{self.directory}/logback.xml",
        }
        properties = [f"-D{name}={value}" for name, value in settings.items()]
        classes = ["-cp", f"{self._jars}/*", "org.apache.cassandra.service.CassandraDaemon"]
        return [JAVA, *machine, f"-javaagent:{agent}", *_MODULES, *properties, *classes]

    def empty(self) -> str:
        # Emptying tables costs a fifth of making them, if their keyspace has no part in the commit log.
        session = self._connected()
        session.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {_SHARED} WITH durable_writes = false"
            " AND replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        tables = session.execute(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{_SHARED}'")
        for (table,) in tables:
            if not table.startswith("mainspring_migration"):
                session.execute(f"TRUNCATE {_SHARED}.{table}")
        return self.url(_SHARED)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.shutdown()
        super().close()

    def url(self, place: str) -> str:
        return f"cassandra://127.0.0.1:{self.port}/{place}?replication=1"

    def _connected(self) -> _Session:
        if self._session is None:
            from cassandra import cluster  # type: ignore[import-untyped]  # noqa: PLC0415  (only needed here)

            self._cluster = driver = cast(_Cluster, cluster.Cluster(["127.0.0.1"], port=self.port))
            self._session = driver.connect()
        return self._session


def _download(directory: Path) -> None:
    debian_packages(["maven"], provides="mvn")
    (directory / "pom.xml").write_text(_POM)
    run(["mvn", "-q", "-B", "-ntp", _COPY, "-DincludeScope=runtime", "-DoutputDirectory=lib"], cwd=directory)
