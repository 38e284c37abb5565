"""The server: configuration to store to engine to services to HTTP, and an orderly way out.

SIGTERM and SIGINT stop it: no new requests, calls in flight end (bounded), shards are released, the store closes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import sys
from pathlib import Path

import uvloop

import mainspring
from mainspring import telemetry
from mainspring.api.app import Api, build_app, token_digest
from mainspring.api.protocol import Limits
from mainspring.api.serving import Listener, listening
from mainspring.config import Config
from mainspring.errors import ConfigError, MainspringError
from mainspring.instance import Instance, is_loopback

EXIT_FAILED = 1
EXIT_CONFIG = 2


def run(config: Config) -> int:
    """Serve until told to stop. Answers the exit code."""
    telemetry.set_up_logging(config.log_level, config.log_format)
    try:
        uvloop.run(_serve(config))
    except (MainspringError, ExceptionGroup) as raised:
        error: Exception = raised
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if not isinstance(error, MainspringError):
            raise
        print(f"mainspring: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED
    return 0


async def _serve(config: Config) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    token, source = read_token(config)
    async with Instance(config) as instance:
        api = Api(
            timers=instance.timers,
            namespaces=instance.namespaces,
            shards=instance.shards,
            ready=instance.ready,
            metrics=instance.metrics,
            token_digests=(token_digest(token),),
            instance=instance.ownership.instance,
            version=mainspring.__version__,
            max_body_bytes=config.max_body_bytes,
        )
        limits = Limits(request_seconds=config.request_seconds, connections=config.max_connections)
        # What exists now lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        async with listening(
            build_app(api), host=config.host, port=config.port, limits=limits, drain_seconds=config.drain_seconds
        ) as listener:
            _banner(config, listener, token, source)
            await stop.wait()
            telemetry.info("stopping", calls_in_flight=instance.engine.dispatcher.in_flight if instance.engine else 0)
    telemetry.info("stopped")


def read_token(config: Config) -> tuple[str, str]:
    """The API's token and where it came from; generated into the data directory at the first start."""
    if config.token:
        return config.token, "as configured"
    path = config.token_path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return _existing_token(path), f"from {path}"
        with os.fdopen(descriptor, "w") as file:
            token = secrets.token_urlsafe(32)
            file.write(token + "\n")
    except OSError as error:
        raise ConfigError(f"Expected a data directory that can be written, got {path}: {error.strerror}") from error
    return token, f"generated into {path}"


def _existing_token(path: Path) -> str:
    token = path.read_text().strip()
    if len(token) < 22:
        raise ConfigError(
            f"Expected a token of at least 22 characters in {path}; remove the file to have one generated"
        )
    return token


def _banner(config: Config, listener: Listener, token: str, source: str) -> None:
    base = f"http://{config.host if ':' not in config.host else f'[{config.host}]'}:{listener.port}"
    shown = token if not config.token else "(hidden)"
    lines = [
        f"Mainspring {mainspring.__version__} is ready at {base}   (description: {base}/docs)",
        f"  store   {config.store_url}",
        f"  token   {shown}   ({source})",
    ]
    if is_loopback(config.host):
        lines.append("  targets public addresses and, because this is a loopback server, this machine")
    else:
        lines.append(f"  targets public addresses{''.join(', ' + network for network in config.allow_targets)}")
    print("\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201
