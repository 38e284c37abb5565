"""python -m daily_report [--port 8720] [--directory .daily-report] [--secret whsec_...]

Without `--secret`, the server on this machine is asked for the signing secret of its namespace `default`. The bearer
token is made at the first start and kept in the directory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
from contextlib import suppress
from pathlib import Path

from mainspring.client import Client
from mainspring.errors import MainspringError
from mainspring.idempotency import SQLiteStore
from mainspring.listening import listening

from .application import Application
from .reports import Reports

TEACHING = """\
serving at {url}

Create the job, and run it now instead of at nine:

  mainspring job create daily-report "0 9 * * *" --timezone Europe/Berlin \\
      --callback-url {url}/jobs/trigger/daily-report --header 'Authorization: Bearer {token}'
  mainspring job trigger daily-report --wait

Look at the reports:

  curl -H 'Authorization: Bearer {token}' {url}/reports
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m daily_report", description="A service with a job.")
    parser.add_argument("--port", type=int, default=8720, help="0 for any")
    parser.add_argument("--directory", type=Path, default=Path(".daily-report"), help="where everything is kept")
    parser.add_argument("--secret", action="append", help="a signing secret; repeat it while secrets change")
    given = parser.parse_args()
    given.directory.mkdir(mode=0o700, exist_ok=True)
    token = kept_token(given.directory / "token")
    application = Application(
        Reports(given.directory / "reports.db"),
        SQLiteStore(str(given.directory / "deliveries.db")),
        token=token,
        secrets=given.secret or [secret_of_the_server()],
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(application, given.port, token))


async def serve(application: Application, port: int, token: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with listening(application, port=port) as listener:
        print(TEACHING.format(url=f"http://127.0.0.1:{listener.port}", token=token), flush=True)
        await stopped.wait()


def kept_token(path: Path) -> str:
    """The token of earlier starts, so that the job keeps its header."""
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
    return path.read_text().strip()


def secret_of_the_server() -> str:
    try:
        with Client() as client:
            return client.namespaces.get("default").secret
    except MainspringError as error:
        sys.exit(f"{error}\nStart a server first (make serve), or give its signing secret with --secret.")


if __name__ == "__main__":
    main()
