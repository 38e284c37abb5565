"""python -m submissions --amqp amqp://guest:guest@127.0.0.1:5672/ [--database submissions.db] [--register URL]

Without `--register` the stand-in for the company register is started beside it.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import ExitStack

from mainspring.idempotency import SQLiteStore

from .application import Settings, build
from .register_server import RegisterServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m submissions", description="Process a broker's submissions.")
    parser.add_argument("--amqp", default="amqp://guest:guest@127.0.0.1:5672/")
    parser.add_argument("--database", default="submissions.db")
    parser.add_argument("--keys", default="keys.db", help="where idempotency keys are kept")
    parser.add_argument("--queue", default="submissions")
    parser.add_argument("--register", default="", help="the URL of the company register")
    given = parser.parse_args()
    with ExitStack() as stack:
        register_url = given.register or stack.enter_context(RegisterServer()).url
        settings = Settings(amqp_url=given.amqp, register_url=register_url, database=given.database, queue=given.queue)
        print(f"consuming {given.queue}", flush=True)
        asyncio.run(build(settings, SQLiteStore(given.keys)).run())


if __name__ == "__main__":
    main()
