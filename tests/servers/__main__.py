"""Servers by hand.

python -m tests.servers start postgresql [mysql …] [--durable]   print a URL for each, run until interrupted
python -m tests.servers obtain [redis …]                         install and download, without starting anything
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack, suppress

from tests.servers.catalogue import SERVERS
from tests.servers.sources import Unobtainable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description="Database servers for tests.")
    parser.add_argument("verb", choices=["start", "obtain"])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(SERVERS)}; all when none is given")
    parser.add_argument("--durable", action="store_true", help="commits wait for the disk: for measurements")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(SERVERS):
        parser.error(f"Expected names of {', '.join(SERVERS)}, got {', '.join(sorted(unknown))}")
    for end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(end, signal.default_int_handler)
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        servers = [stack.enter_context(SERVERS[name](durable=arguments.durable)) for name in arguments.names or SERVERS]
        missing = 0
        for server in servers:
            try:
                server.obtain()
            except Unobtainable as error:
                sys.stderr.write(f"{server.name}: {error}\n")
                missing = 1
                continue
            if arguments.verb == "start":
                server.start()
                sys.stdout.write(f"{server.fresh()} (process {server.pid}, log {server.log})\n")
                sys.stdout.flush()
        if arguments.verb == "start" and not missing:
            signal.pause()
        return missing
    return 0


if __name__ == "__main__":
    sys.exit(main())
