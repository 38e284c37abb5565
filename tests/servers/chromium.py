"""Chromium from Debian's package, without a window: a browser that tests talk to through its debugging port."""

from __future__ import annotations

from collections.abc import Sequence

from tests.servers.server import Server
from tests.servers.sources import debian_packages

_PROGRAM = "/usr/bin/chromium"


class Chromium(Server):
    name = "chromium"

    def obtain(self) -> None:
        debian_packages(["chromium"], provides=_PROGRAM)

    def command(self) -> Sequence[str]:
        # It runs as root in containers, where it has no sandbox and little shared memory. It sees our own pages only.
        return [
            _PROGRAM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--user-data-dir={self.directory}/data",
            f"--remote-debugging-port={self.port}",
            "about:blank",
        ]

    def url(self, place: str) -> str:
        return f"chromium://127.0.0.1:{self.port}/{place}"
