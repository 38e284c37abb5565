"""Redis 7 from Debian's package."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.servers.server import Server
from tests.servers.sources import debian_packages

_SERVER = "/usr/bin/redis-server"


class Redis(Server):
    name = "redis"

    def obtain(self) -> None:
        debian_packages(["redis-server"], provides=_SERVER)

    def command(self) -> Sequence[str]:
        network = ["--bind", "127.0.0.1", "--port", str(self.port)]
        # The log of every write, so that what was acknowledged survives a kill.
        files = ["--dir", f"{self.directory}/data", "--save", "", "--appendonly", "yes"]
        return [_SERVER, *network, *files, "--appendfsync", "always" if self.durable else "everysec"]

    def ready(self) -> bool:
        return self.execute("PING").strip() == "PONG"

    def fresh(self) -> str:
        self.execute("FLUSHALL")
        return self.url("0")

    def execute(self, *words: str) -> str:
        """Run a command; what it prints."""
        command = ["redis-cli", "-h", "127.0.0.1", "-p", str(self.port), *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=10).stdout

    def url(self, place: str) -> str:
        return f"redis://127.0.0.1:{self.port}/{place}"
