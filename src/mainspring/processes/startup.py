"""What every process of the command line does at its start and its end: settings, token, store, banner, exit code."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from msgspec.structs import replace

import mainspring
from mainspring import descriptors, telemetry
from mainspring.api.head_checks import Hosts, hosts_on
from mainspring.api.limits import Limits
from mainspring.api.peers import RESERVE
from mainspring.config import Config, read_token_file
from mainspring.delivery.address import is_loopback
from mainspring.errors import ConfigError, MainspringError, StoreUnavailable
from mainspring.loglines import is_text

T = TypeVar("T")

EXIT_FAILED = 1
EXIT_CONFIG = 2
STORE_RETRY_SECONDS = 1.0
COLLECTED = (10_000, 8, 250)
"""How many new objects there are before the collector looks at them, how often before it looks at those of all these
times, and how often before it looks at all. Many timers that become due at once stay for a while: what was looked at
the second time were 400,000 objects, and nothing else went on for 70 ms."""


def served(config: Config) -> Config:
    """A server that only this machine can reach may call this machine, unless a setting says otherwise: trying out a
    server needs no settings. Nothing else depends on the address to listen on."""
    if config.allow_loopback is not None:
        return config
    return replace(config, allow_loopback=is_loopback(config.host))


def run_to_end(config: Config, work: Coroutine[Any, Any, None]) -> int:
    """What a process does; returns its exit code, and says what was wrong."""
    telemetry.set_up_logging(config.log_level, config.log_format)
    descriptors.raise_limit()
    try:
        uvloop.run(work)
    except (MainspringError, ExceptionGroup) as raised:
        error = _only_cause(raised)
        if not isinstance(error, MainspringError):
            raise
        return give_up(config, error)
    return 0


def spare_collector() -> None:
    """What exists now lives as long as the process: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)


def give_up(config: Config, error: MainspringError) -> int:
    """Say why a process ends, and return its exit code."""
    if is_text(config.log_format):
        print(f"mainspring: {error}", file=sys.stderr)  # noqa: T201
    else:
        telemetry.error(str(error))
    return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED


def _only_cause(error: Exception) -> Exception:
    """The error inside a group: tasks that fail together fail for one reason."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def limits_of(config: Config) -> Limits:
    """What peers may take, given the settings and what the system allows this process."""
    available = max(1, descriptors.for_peers() - RESERVE)
    if available < config.max_connections:
        telemetry.warning(
            "too few file descriptors: fewer connections are accepted than configured", connections=available
        )
    return Limits(
        request_seconds=config.request_seconds,
        connections=min(config.max_connections, available),
        tokenless_connections=config.max_tokenless_connections,
    )


def within_descriptors(config: Config) -> Config:
    """The same with no more calls in flight than the system allows this process; the others wait for a slot."""
    # While a fetch is made, the result of another may be on its way to its origin.
    wanted = config.in_flight_limit + 2 * config.fetch_limit
    available = descriptors.for_calls(peers=config.max_connections + RESERVE)
    if wanted <= available:
        return config
    timers = max(1, config.in_flight_limit * available // wanted)
    fetches = max(1, config.fetch_limit * available // wanted)
    telemetry.warning(
        "too few file descriptors: fewer calls are made at once than configured",
        in_flight_limit=timers,
        fetch_limit=fetches,
    )
    return replace(config, in_flight_limit=timers, fetch_limit=fetches)


def hosts_of(config: Config) -> Hosts:
    """The names that a server answers to: on loopback its own, elsewhere any."""
    return hosts_on(config.host, (config.advertise_url, *config.allow_hosts))


def abandon() -> None:
    """The way out when something does not end: like a crash, it loses nothing that was acknowledged."""
    waiting = [f"{task.get_name()}: {task.get_coro()}" for task in asyncio.all_tasks()]
    telemetry.error("shutdown took too long and is being cut short", tasks=waiting)
    os._exit(EXIT_FAILED)


async def started(
    make: Callable[[], AbstractAsyncContextManager[T]], config: Config, stack: AsyncExitStack, stop: asyncio.Event
) -> T | None:
    """What `make` makes, entered as soon as the store can be reached; None if the process is stopped before that."""
    deadline = time.monotonic() + config.store_wait_seconds
    while not stop.is_set():
        try:
            return await stack.enter_async_context(make())
        except (StoreUnavailable, ExceptionGroup) as raised:
            error = _only_cause(raised)
            if not isinstance(error, StoreUnavailable) or time.monotonic() >= deadline:
                raise error from raised
            telemetry.warning(
                "waiting for the store",
                reason=error.detail,
                seconds_left=round(deadline - time.monotonic(), 1),
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(STORE_RETRY_SECONDS):
                await stop.wait()
    return None


def advertised(config: Config, port: int) -> str:
    """Where others reach this server: as configured, or where it listens, if that is one address."""
    if config.advertise_url:
        return config.advertise_url.rstrip("/")
    return "" if config.host in ("", "0.0.0.0", "::") else base_url(config.host, port)  # noqa: S104


def read_token(config: Config) -> tuple[str, str]:
    """The API's token and where it came from; generated into the data directory at the first start."""
    if config.token:
        return config.token, "as configured"
    path = config.token_path
    try:
        if not config.token_file:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                token = secrets.token_urlsafe(32)
                if _write_new(path, token + "\n"):
                    return token, f"generated into {path}"
        return read_token_file(path, generated=not config.token_file), f"from {path}"
    except OSError as error:
        expected = "a token file that can be read" if config.token_file else "a data directory that can be written"
        raise ConfigError(f"Expected {expected}, got {path}: {error.strerror}") from error


def _write_new(path: Path, text: str) -> bool:
    """Have the file appear whole, readable by its owner only; False if another process was first."""
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=".token-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.link(partial, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(partial)
    return True


def base_url(host: str, port: int) -> str:
    return f"http://{host if ':' not in host else f'[{host}]'}:{port}"


def show_banner(config: Config, port: int, token: str, source: str) -> None:
    """Say that the server is ready, and with what. The token is for whoever sits at the terminal, not for a log."""
    base = base_url(config.host, port)
    shown = f"{token}   ({source})" if not config.token and sys.stderr.isatty() else source
    announce(
        config,
        f"Mainspring {mainspring.__version__} is ready at {base}   (description: {base}/docs)",
        store=config.shown_store_url,
        token=shown,
        workers=config.workers,
        targets=["public addresses", *config.allow_targets, *(["this machine"] if config.allow_loopback else [])],
    )


def announce(config: Config, headline: str, **facts: object) -> None:
    """Say on standard error, whatever the log level, that a process is ready: in a log of JSON as one line of it."""
    if not is_text(config.log_format):
        telemetry.announce(headline, **facts)
        return
    shown = {name: ", ".join(value) if isinstance(value, list) else value for name, value in facts.items()}
    lines = [headline, *(f"  {name:<7} {value}" for name, value in shown.items())]
    print("\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201
