"""`mainspring dev`: tools for trying things out."""

from __future__ import annotations

import asyncio
import random
import sys
from datetime import UTC, datetime, timedelta

import click
import msgspec
from msgspec import Raw

from mainspring.cli.dev_serve import dev_clock, dev_serve
from mainspring.cli.globals import connection_options, settings
from mainspring.cli.output import show
from mainspring.cli.parameters import DURATION, JSON, Whole
from mainspring.cli.selection import namespace_option
from mainspring.clock import wall_ms
from mainspring.timers.messages import CreateTimer
from mainspring.wire.instants import to_instant


@click.group()
def dev() -> None:
    """Tools for trying things out: an emulator whose clock can be moved, a receiver for callbacks, sample data, a small
    load test.

    \b
    Examples:
      mainspring dev serve
      mainspring dev clock +2h
      mainspring dev receive
      mainspring dev benchmark
      mainspring dev generate 1000 | mainspring timer import -
    """


dev.add_command(dev_serve)
dev.add_command(dev_clock)


@dev.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=Whole(0, 65535), default=8711, show_default=True, help="0 picks a free one.")
@click.option("--status", type=Whole(200, 599), default=200, show_default=True, help="Status to answer with.")
@click.option("--fail-first", type=Whole(0), default=0, help="Answer the first N attempts of each delivery with 500.")
@click.option("--next-in", type=DURATION, help="Ask to be called again after this time.")
@click.option("--delay", type=DURATION, default=0.0, help="Wait this long before answering.")
@click.option("--secret", "secrets", multiple=True, help="Check signatures with this secret (whsec_…). Repeatable.")
@click.option("--body", type=JSON, help="Answer with exactly this body: JSON text, @file, or - for stdin.")
def receive(
    *,
    host: str,
    port: int,
    status: int,
    fail_first: int,
    next_in: float | None,
    delay: float,
    secrets: tuple[str, ...],
    body: Raw | None,
) -> None:
    """Receive callbacks on this machine, print each one and answer as the options say, until Ctrl-C.

    \b
    Examples:
      mainspring dev receive
      mainspring dev receive --fail-first 2
      mainspring dev receive --status 503 --delay 2s
      mainspring dev receive --next-in 10s
      mainspring dev receive --secret "$(mainspring namespace get default -o json | jq -r .secret)"
      mainspring dev receive --body '{"ok": false}'
    """
    from mainspring.cli.receiver import Script, receive_until_interrupted  # noqa: PLC0415  (heavy)

    script = Script(
        status=status,
        fail_first=fail_first,
        next_in_seconds=next_in,
        delay_seconds=delay,
        secrets=secrets,
        body=None if body is None else bytes(body),
    )
    receive_until_interrupted(host, port, script)


@dev.command()
@click.argument("count", type=Whole(1, 10_000_000))
@click.option("--callback-url", default="http://127.0.0.1:8711/", show_default=True, help="Where the calls go.")
@click.option("--id-prefix", "prefix", default="sample-", show_default=True, help="Start of the ids.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the timers.")
@click.option("--within", type=DURATION, default=3600.0, help="Due at random times within this period. [default: 1h]")
@click.option("--seed", type=int, help="Seed of the random choices, to repeat them.")
def generate(*, count: int, callback_url: str, prefix: str, namespace: str, within: float, seed: int | None) -> None:
    """Write COUNT sample timers as JSONL, for `timer import`.

    \b
    Examples:
      mainspring dev generate 1000 | mainspring timer import -
      mainspring dev generate 5 --within 1m --callback-url https://example.com/hook > timers.jsonl
    """
    chance = random.Random(seed)
    now: datetime = to_instant(wall_ms()).astimezone(UTC)
    out = sys.stdout.buffer
    for number in range(count):
        line = CreateTimer(
            namespace=namespace,
            timer_id=f"{prefix}{number:06d}",
            execute_at=now + timedelta(milliseconds=chance.randrange(max(1, round(within * 1000)))),
            callback_url=callback_url,
            payload=Raw(msgspec.json.encode({"number": number, "sample": True})),
            labels={"sample": "true"},
        )
        out.write(msgspec.json.encode(line) + b"\n")
    out.flush()


@dev.command("benchmark")
@click.option("--count", type=Whole(1, 1_000_000), default=1000, show_default=True, help="Timers to create.")
@click.option("--connections", type=Whole(1, 128), default=16, show_default=True, help="Concurrent connections.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address of this machine, as the server reaches it."
)
@namespace_option
@connection_options
@click.pass_context
def benchmark_command(ctx: click.Context, *, count: int, connections: int, host: str, namespace: str) -> None:
    """Put a small load on a running server: how fast it accepts timers, and how late it calls.

    Creates timers that are due after a second and receives their callbacks itself. Timers that never arrived are
    deleted at the end. A server that listens on more than loopback needs --allow-target for this address. If it
    runs on another machine, both clocks must agree: their difference counts as lateness. The rate is what one client
    can achieve; for careful figures use `python -m bench`.

    \b
    Examples:
      mainspring dev benchmark
      mainspring dev benchmark --count 20000 --connections 64 --output json
    """
    from mainspring.cli.benchmark import benchmark  # noqa: PLC0415  (heavy)

    chosen = settings(ctx)
    view = asyncio.run(benchmark(count=count, connections=connections, namespace=namespace, host=host, chosen=chosen))
    show(view, chosen)
