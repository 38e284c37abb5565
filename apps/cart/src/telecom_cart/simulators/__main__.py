"""`python -m telecom_cart.simulators salesforce|shopify`"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from telecom_cart.shutdown import on_end
from telecom_cart.simulators.server import SIMULATIONS, PortTaken, serving

EPILOG = """
It listens on this machine only, takes any credentials, and keeps everything in memory until it is ended.

  curl -s http://127.0.0.1:8701/_sim                    what can be done with it
  curl -s http://127.0.0.1:8701/_sim/state              clock, settings, baskets, orders
  curl -s http://127.0.0.1:8701/_sim/ledger             every call that it saw, every order that it has
  curl -s http://127.0.0.1:8701/_sim/faults -d '{"verb": "checkout", "kind": "applyThenDrop"}'
                                                        make the next order, and drop the reply
  curl -s http://127.0.0.1:8701/_sim/expire -d '{}'     let all baskets be gone
  curl -s http://127.0.0.1:8701/_sim/clock -d '{"advance": 1800}'
                                                        half an hour later
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m telecom_cart.simulators",
        description="A commerce platform to try the cart against, with faults on command.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("platform", choices=sorted(SIMULATIONS))
    parser.add_argument("--port", type=int, default=8701, help="0: any that is free (default: %(default)s)")
    parser.add_argument("--end-with-stdin", action="store_true", help="end when standard input does")
    given = parser.parse_args(arguments)
    try:
        asyncio.run(_serve(given.platform, given.port, ends_with_stdin=given.end_with_stdin))
    except PortTaken as error:
        parser.exit(1, f"{error}\n")
    return 0


async def _serve(platform: str, port: int, *, ends_with_stdin: bool) -> None:
    ended = asyncio.Event()
    on_end(ended.set, with_stdin=ends_with_stdin)
    async with serving(platform, port=port) as (_, address):
        sys.stdout.write(f"{platform} is simulated at {address}; {address}/_sim says how to steer it\n")
        sys.stdout.flush()
        await ended.wait()
        logging.disable()  # whatever is cut off now was cut off by us


if __name__ == "__main__":
    sys.exit(main())
