"""MariaDB 10.11 from Debian's package, in the place of MySQL."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Sequence

from tests.servers.server import Server, new_place
from tests.servers.sources import debian_packages

_SERVER = "/usr/sbin/mariadbd"
_QUICK = ["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync", "--sync-binlog=0"]


class MySQL(Server):
    name = "mysql"

    def obtain(self) -> None:
        debian_packages(["mariadb-server"], provides=_SERVER)

    def prepare(self) -> None:
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={self.directory}/data", "--skip-test-db"]
        options = ["--auth-root-authentication-method=normal", "--skip-name-resolve", f"--user={getpass.getuser()}"]
        with self.log.open("ab") as log:
            subprocess.run([*install, *options], cwd=self.directory, stdout=log, stderr=log, check=True, timeout=120)

    def command(self) -> Sequence[str]:
        files = [
            f"--datadir={self.directory}/data",
            f"--socket={self.directory}/socket",
            f"--pid-file={self.directory}/pid",
        ]
        network = ["--bind-address=127.0.0.1", f"--port={self.port}", "--skip-name-resolve", "--max-connections=200"]
        text = ["--character-set-server=utf8mb4", "--max-allowed-packet=64M"]
        options = [] if self.durable else _QUICK
        return [_SERVER, "--no-defaults", f"--user={getpass.getuser()}", *files, *network, *text, *options]

    def fresh(self) -> str:
        place = new_place()
        self.execute(f"CREATE DATABASE {place}")
        return self.url(place)

    def execute(self, statement: str, *, database: str = "") -> str:
        """Run a statement as the superuser; what it prints."""
        client = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(self.port), "-u", "root", "--batch", "-N"]
        command = [*client, "-e", statement, *([database] if database else [])]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    def url(self, place: str) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{place}"
