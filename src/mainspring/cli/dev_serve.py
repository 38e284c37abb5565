"""`mainspring dev serve` and `mainspring dev clock`: Mainspring for trying out and testing what uses it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from mainspring.cli.config_flags import load, some_config_options
from mainspring.cli.globals import connection_options, settings
from mainspring.cli.output import say, show
from mainspring.cli.parameters import DURATION, MOMENT, Whole
from mainspring.cli.progress import spinner
from mainspring.errors import ConfigError

if TYPE_CHECKING:
    from mainspring.emulator.emulation import Emulation

FLAGS = ("host", "port", "data_dir", "token_file", "allow_targets", "allow_loopback", "log_level", "log_format")


@click.command("serve")
@click.option("--at", type=MOMENT, help="Start at this instant. [default: now]")
@click.option("--frozen", is_flag=True, help="Let time stand still until `mainspring dev clock` moves it.")
@click.option(
    "--receiver-port",
    type=Whole(0, 65535),
    default=8711,
    show_default=True,
    help="Where callbacks are received and printed; 0 picks a free one.",
)
@click.option("--no-receiver", is_flag=True, help="Receive nothing: your own program does.")
@some_config_options(FLAGS)
def dev_serve(
    *,
    at: datetime | None,
    frozen: bool,
    receiver_port: int,
    no_receiver: bool,
    file: Path | None,
    **flags: Any,
) -> None:
    """Run an emulator: a whole server on a store in memory, whose clock can be moved ahead, and a receiver that prints
    what arrives; until SIGTERM or Ctrl-C.

    Time flows as usual and can be moved ahead with `mainspring dev clock`; with --frozen it stands still in between.
    Everything is lost when the emulator ends. Signatures carry the machine's time, so that receivers accept them; the
    header mainspring-clock says what time it is in the emulator.

    \b
    Examples:
      mainspring dev serve
      mainspring dev serve --frozen --at 2026-12-24T17:00:00+01:00
      mainspring dev serve --port 8800 --no-receiver
    """
    from mainspring.emulator.emulation import SETTINGS, Emulation  # noqa: PLC0415  (heavy, like all below)

    config = load({**flags, **SETTINGS}, file)
    from mainspring.emulator.clock import VirtualClock  # noqa: PLC0415
    from mainspring.emulator.serve import serve_emulated  # noqa: PLC0415
    from mainspring.wire.instants import to_ms  # noqa: PLC0415

    emulation = Emulation(VirtualClock(at_ms=None if at is None else to_ms(at), flows=not frozen))
    if no_receiver:
        sys.exit(serve_emulated(config, emulation))
    with _receiving(receiver_port, emulation):
        # The receiver is on this machine, whatever the server listens on.
        sys.exit(serve_emulated(replace(config, allow_loopback=config.allow_loopback is not False), emulation))


@contextmanager
def _receiving(port: int, emulation: Emulation) -> Iterator[None]:
    from mainspring.api.listener import cannot_listen  # noqa: PLC0415
    from mainspring.cli.receiver import DevReceiver, Script  # noqa: PLC0415

    class Knowing(Script, frozen=True):
        """Checks signatures with the secrets of all namespaces, new ones included."""

        def judge(self, headers: dict[str, str], body: bytes) -> str:
            return Script(secrets=tuple(chain.from_iterable(emulation.secrets()))).judge(headers, body)

    host = "127.0.0.1"
    try:
        receiver = DevReceiver(host, port, Knowing())
    except OSError as error:
        raise ConfigError(
            f"{cannot_listen(host, port, error).detail}: choose another --receiver-port, "
            "or --no-receiver if something receives there already"
        ) from error
    with receiver:
        Thread(target=receiver.serve_forever, name="receiver", daemon=True).start()
        click.echo(f"Receiving at http://{host}:{receiver.server_address[1]}/", err=True)
        try:
            yield
        finally:
            receiver.shutdown()


class Move(click.ParamType[timedelta | datetime]):
    """How far ahead, or to which instant."""

    name = "+duration|instant"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta | datetime:
        if isinstance(value, timedelta | datetime):
            return value
        text = str(value)
        if text.startswith("+"):
            return timedelta(seconds=DURATION.convert(text[1:], param, ctx))
        if "-" not in text:
            self.fail(f"Expected a duration with a plus, such as +2h, or an instant, got {text!r}", param, ctx)
        return MOMENT.convert(text, param, ctx)


@click.command("clock")
@click.argument("move", type=Move(), required=False, metavar="[+DURATION|INSTANT]")
@connection_options
@click.pass_context
def dev_clock(ctx: click.Context, *, move: timedelta | datetime | None) -> None:
    """Show the clock of an emulator, or move it ahead: by a duration, or to an instant.

    On the way it stops at each instant at which something is due, until all of it was called and has ended. So calls
    are made in order, and none is late. Only the emulator of `mainspring dev serve` has such a clock.

    \b
    Examples:
      mainspring dev clock
      mainspring dev clock +2h
      mainspring dev clock +30d
      mainspring dev clock 2026-12-25T00:00:00Z
    """
    from mainspring.emulator.remote import RemoteClock  # noqa: PLC0415  (heavy)

    chosen = settings(ctx)
    with chosen.connect() as client:
        clock = RemoteClock(client)
        view = clock.show()
        if move is not None:
            target = move if isinstance(move, datetime) else view.now + move
            if target < view.now:
                raise click.BadParameter(
                    f"Time never goes back: expected an instant from {view.now.isoformat()} on, "
                    f"got {target.isoformat()}"
                )
            with spinner("moving the clock", chosen) as tell:
                view = clock.move_to(target, lambda seen: tell(f"{seen.now.isoformat()}: waiting for calls to end"))
        show(view, chosen)
        if not view.flows and move is None:
            say("Time stands still until it is moved, for example with `mainspring dev clock +1h`.")
