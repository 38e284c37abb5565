"""`python -m telecom_cart`"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import uvloop

from mainspring.errors import MainspringError
from telecom_cart import __version__
from telecom_cart.demo import Demo, DemoFailed
from telecom_cart.errors import CartError
from telecom_cart.platforms import PREFIX, Name, NotConfigured, PlatformChoice
from telecom_cart.provider import Lookup
from telecom_cart.server import ServerOptions, log_to_stderr, serve, settlement_on
from telecom_cart.settings import CURRENCIES, Settings
from telecom_cart.settlement import LOOK_NOW

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_STORE: Final = "sqlite:///.telecom-cart/cart.db"
SECRETS: Final = """
\b
Credentials come from the environment only, because everybody on the machine can see the arguments of a process:
  salesforce  TELECOM_CART_SALESFORCE_ORGANIZATION, _SITE, _CLIENT_ID, _CLIENT_SECRET;
              for an eventual look-up also _ADMIN_CLIENT_ID, _ADMIN_CLIENT_SECRET
  shopify     TELECOM_CART_SHOPIFY_STOREFRONT_TOKEN, _ADMIN_TOKEN;
              _COMPLETION_SECONDS (60): how long it may take to make an order that it has accepted
"""


class LookupType(click.ParamType[Lookup]):
    name = "strong|SECONDS|unbounded"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Lookup:
        if isinstance(value, Lookup):
            return value
        if value in ("strong", "unbounded"):
            return Lookup(0.0 if value == "strong" else None)
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= 86_400:
            self.fail("Expected strong, unbounded, or seconds from 1 to 86400", param, ctx)
        return Lookup(seconds)


def setting(name: str, **fields: Any) -> Callable[[F], F]:
    """An option that may also be in the environment, under its own name."""
    variable = f"{PREFIX}{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, envvar=variable, show_envvar=True, **fields)


store_option = setting(
    "--store",
    default=DEFAULT_STORE,
    show_default=True,
    help="Where carts, orders and timers live: any store of Mainspring. Instances on one store share the work.",
)


def platform_options(command: Callable[..., None]) -> Callable[..., None]:
    options = [
        setting(
            "--provider",
            type=click.Choice(["salesforce", "shopify", "double"], case_sensitive=False),
            required=True,
            help="The platform behind the cart. `double` lives in this process, and its data ends with it. "
            "Checkouts begun at another shop stay unknown until that shop is served again, or a person decides.",
        ),
        setting("--provider-url", default="", help="Where the platform is reached: https://HOST."),
        setting(
            "--lookup",
            type=LookupType(),
            default="unbounded",
            show_default=True,
            help="How soon an order that was made is found at the platform. `strong`: at once; say so only if you know "
            "that the shop numbers its orders by our references, since elsewhere a lost reply is a second order. "
            "SECONDS: within this many. `unbounded`: the platform promises nothing, so a person decides about a "
            "checkout whose reply was lost and of which nothing is found.",
        ),
        setting(
            "--simulated",
            is_flag=True,
            help="The platform is a simulator: any credentials will do, and there is a page for trials.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
def main() -> None:
    """A telecom shop's cart whose checkout cannot order twice.

    \b
    Try it, with a simulated platform and a page:     python -m telecom_cart demo
    Run it in front of a platform:                    python -m telecom_cart serve --provider salesforce \\
                                                        --provider-url https://CODE.api.commercecloud.salesforce.com
    Checkouts whose outcome is unknown:               python -m telecom_cart unknown
    Decide about one of them:                         python -m telecom_cart settle ann --order 00012345
    """


@main.command("serve", epilog=SECRETS)
@store_option
@platform_options
@setting("--host", default="127.0.0.1", show_default=True, help="There is no login: think before exposing it.")
@setting("--port", default=8710, type=click.IntRange(0, 65535), show_default=True, help="0 picks a free one.")
@setting(
    "--attempt-seconds",
    default=Settings.attempt_seconds,
    type=click.FloatRange(1, 3600),
    show_default=True,
    help="A checkout that is not over by then is recovered: the platform is asked what became of it.",
)
@setting(
    "--answer-seconds",
    default=Settings.answer_seconds,
    type=click.FloatRange(0.1, 300),
    show_default=True,
    help="How long a request waits for its checkout before it is told that it is in progress.",
)
@setting(
    "--currency",
    type=click.Choice(CURRENCIES),
    default=Settings.currency,
    show_default=True,
    help="Currency of all carts; the built-in taxes are Canadian.",
)
@click.option("--end-with-stdin", is_flag=True, help="End when standard input does.")
def serve_command(
    *,
    store: str,
    provider: Name,
    provider_url: str,
    lookup: Lookup,
    simulated: bool,
    host: str,
    port: int,
    attempt_seconds: float,
    answer_seconds: float,
    currency: str,
    end_with_stdin: bool,
) -> None:
    """Serve the cart over HTTP, until SIGTERM or Ctrl-C."""
    log_to_stderr()
    serving = ServerOptions(
        store=store,
        platform=PlatformChoice(provider, provider_url, lookup, is_simulated=simulated),
        host=host,
        port=port,
        settings=Settings(currency=currency, attempt_seconds=attempt_seconds, answer_seconds=answer_seconds),
        ends_with_stdin=end_with_stdin,
    )
    _run(serve(serving, ready=lambda address: click.echo(f"The cart is at {address}")))


@main.command("demo")
@click.option(
    "--provider",
    type=click.Choice(["salesforce", "shopify"], case_sensitive=False),
    default="salesforce",
    show_default=True,
    help="The platform that is simulated.",
)
@click.option("--port", default=8710, type=click.IntRange(1, 65535), show_default=True, help="Port of the cart.")
@click.option(
    "--simulator-port",
    default=8713,
    type=click.IntRange(1, 65535),
    show_default=True,
    help="Port of the simulated platform.",
)
@click.option(
    "--folder",
    default=".telecom-cart",
    type=click.Path(path_type=Path, file_okay=False),
    show_default=True,
    help="Where carts and orders live.",
)
def demo_command(provider: str, port: int, simulator_port: int, folder: Path) -> None:
    """Run the cart and a simulated platform, and say what to try.

    Both are processes of their own. A cart that is killed is started again; the platform remembers what it was asked.
    """
    demo = Demo(provider=provider, port=port, simulator_port=simulator_port, folder=folder, say=click.echo)
    try:
        asyncio.run(demo.run())
    except DemoFailed as error:
        raise click.ClickException(str(error)) from None


@main.command("unknown")
@store_option
def unknown_command(*, store: str) -> None:
    """List the checkouts whose outcome is unknown, for a person to `settle`.

    A line each, with tabs: the user, the reference to look for at the platform, which shop, since when, and why it is
    not known. Most of them resolve themselves soon; those that say that a person has to decide do not.
    """

    async def listed() -> None:
        async with settlement_on(store) as settlement:
            async for cart in settlement.unknown():
                attempt = cart.attempt
                assert attempt is not None
                since = datetime.fromtimestamp(attempt.started_at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                why = f"{attempt.unresolved} {LOOK_NOW}" if attempt.is_over else attempt.unresolved
                click.echo("\t".join((cart.user_id, attempt.reference, attempt.place, since, why)))

    _run(listed())


@main.command("settle")
@click.argument("user")
@click.option("--order", metavar="NUMBER", help="There is an order at the platform, and this is its number.")
@click.option("--not-made", is_flag=True, help="There is none. The cart can be ordered again soon.")
@store_option
def settle_command(*, user: str, order: str | None, not_made: bool, store: str) -> None:
    """Decide what became of USER's checkout, if nothing else can.

    Look at the platform for an order with the attempt's reference first: `unknown` shows it, and the shop. What you
    say here is final: if you say that there is none, and there is, the next checkout orders again. Nothing else is
    changed, and the platform is not asked. After --not-made, the cart opens again as soon as the cart's
    server has closed the basket, so that no process that was held up can order it. If the basket was gone already, it
    may have been ordered after you looked: then `unknown` lists it again, and you have to look again.
    """
    if (order is None) == (not not_made):
        raise click.UsageError("Say what you found: --order NUMBER or --not-made.")

    async def settle() -> None:
        async with settlement_on(store) as settlement:
            await settlement.settle(user, order_number=order)

    _run(settle())
    opened = "nothing was ordered. The cart is open again soon, unless `unknown` still lists it: then look again"
    click.echo(f"Settled: {opened if order is None else f'it is order {order}'}.")


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        uvloop.run(work)
    except (CartError, NotConfigured, MainspringError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main(prog_name="python -m telecom_cart")
