"""PostgreSQL 15 from Debian's package."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from typing import ClassVar

from tests.servers.server import Server, new_place
from tests.servers.sources import debian_packages

_BIN = "/usr/lib/postgresql/15/bin"
_QUICK = ["-c", "fsync=off", "-c", "full_page_writes=off"]


class PostgreSQL(Server):
    name = "postgresql"
    stop_signal = signal.SIGINT
    initdb_options: ClassVar[Sequence[str]] = ()

    @property
    def user(self) -> str | None:
        # It refuses to run as root.
        return "postgres" if os.geteuid() == 0 else None

    def obtain(self) -> None:
        debian_packages(["postgresql-15"], provides=f"{_BIN}/postgres")

    def prepare(self) -> None:
        if self.user is not None:
            shutil.chown(self.directory, self.user, self.user)
        initdb = [f"{_BIN}/initdb", "-D", f"{self.directory}/data", "-U", "postgres", "-A", "trust"]
        options = ["--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        with self.log.open("ab") as log:
            subprocess.run(
                [*initdb, *options, *self.initdb_options],
                user=self.user,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                check=True,
            )

    def command(self) -> Sequence[str]:
        options = [] if self.durable else _QUICK
        server = [f"{_BIN}/postgres", "-D", f"{self.directory}/data", "-p", str(self.port), "-k", ""]
        return [*server, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", *options]

    def ready(self) -> bool:
        check = [f"{_BIN}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        return subprocess.run(check, check=False, timeout=10).returncode == 0

    def fresh(self) -> str:
        place = new_place()
        self.execute(f"CREATE DATABASE {place}")
        return self.url(place)

    def empty(self) -> str:
        # A schema, which the store makes, costs a tenth of a database.
        return f"{self.url('postgres')}?schema={new_place()}"

    def execute(self, statement: str, *, database: str = "postgres") -> str:
        """Run a statement as the superuser; what it prints."""
        psql = [
            f"{_BIN}/psql",
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        command = [*psql, "-U", "postgres", "-d", database, "-c", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    def url(self, place: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{place}"
