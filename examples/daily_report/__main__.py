"""python -m daily_report [--port 8720] [--directory .daily-report] [--secret whsec_...]

Without `--secret`, the server on this machine is asked for the signing secret of its namespace `default`. The bearer
token is made at the first start and kept in the directory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import socket
import sys
from pathlib import Path

import uvicorn

from mainspring.client import Client
from mainspring.errors import MainspringError
from mainspring.idempotency import SQLiteStore

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
    listener = socket.create_server(("127.0.0.1", given.port))
    print(TEACHING.format(url=f"http://127.0.0.1:{listener.getsockname()[1]}", token=token), flush=True)
    config = uvicorn.Config(application, lifespan="off", log_level="warning")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


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
