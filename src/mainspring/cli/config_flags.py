"""Every field of `Config` as a flag, with its description as help: written once, in the struct.

What a server would refuse when it starts is refused here already, together with all else that is wrong.
"""

from __future__ import annotations

import os
import tomllib
import typing
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import Meta

from mainspring.config import PREFIX, SECRET_SETTINGS, Check, Config, load_config, read_token_file
from mainspring.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


def config_options(command: F) -> F:
    return some_config_options([name for name in Config.__struct_fields__ if name not in SECRET_SETTINGS])(command)


def some_config_options(names: Sequence[str]) -> Callable[[F], F]:
    """For a process that goes by some of the settings only."""
    return partial(_add_options, names)


def _add_options(names: Sequence[str], command: F) -> F:
    hints = typing.get_type_hints(Config, include_extras=True)
    defaults = dict(zip(Config.__struct_fields__, Config.__struct_defaults__, strict=True))
    for name in reversed(names):
        command = _option(name, hints[name], defaults[name])(command)
    file = click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        help=f"TOML file; settings are named like the flags, with underscores. [default: {PREFIX}CONFIG]",
    )
    return file(command)


def load(flags: dict[str, Any], file: Path | None) -> Config:
    """Flags that were not given do not count, so that the environment and the file can speak."""
    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    return load_config(given, file=file, checks=_CHECKS)


def _check_store(config: Config) -> None:
    from mainspring.clock import SystemClock  # noqa: PLC0415  (not for --help)
    from mainspring.stores import timer_store_from_url  # noqa: PLC0415

    timer_store_from_url(config.store_url, clock=SystemClock())
    if config.store_url.startswith("mongodb"):
        # The driver knows the options of these URLs, and reads them when a client is made; none connects yet.
        from mainspring.stores.mongodb.connection import make_client  # noqa: PLC0415

        make_client(config.store_url)


def _check_registry(config: Config) -> None:
    from mainspring.clock import SystemClock  # noqa: PLC0415  (not for --help)
    from mainspring.stores import store_from_url  # noqa: PLC0415

    if config.registry:
        store_from_url(config.registry, clock=SystemClock())


def _check_targets(config: Config) -> None:
    from mainspring.delivery.guard import Guard  # noqa: PLC0415  (not for --help)

    wrong: list[str] = []
    for network in config.allow_targets:
        try:
            Guard(allow=(network,))
        except ConfigError as error:
            wrong.append(error.detail)
    if wrong:
        raise ConfigError("; ".join(wrong))


def _check_token_file(config: Config) -> None:
    try:
        if not config.token and (config.token_file or config.token_path.exists()):
            read_token_file(config.token_path, generated=not config.token_file)
    except OSError as error:
        raise ConfigError(f"Expected a readable file at {config.token_path}, got: {error.strerror}") from error


_CHECKS = (
    Check(("store", "data_dir"), _check_store),
    Check(("registry",), _check_registry),
    Check(("allow_targets",), _check_targets),
    Check(("token_file", "token", "data_dir"), _check_token_file),
)


def sources(flags: dict[str, Any], file: Path | None) -> dict[str, str]:
    """Where each setting comes from. For a configuration that has been loaded without an error."""
    chosen = file or (Path(os.environ[PREFIX + "CONFIG"]) if os.environ.get(PREFIX + "CONFIG") else None)
    in_file = tomllib.loads(chosen.read_text()) if chosen else {}

    def source(name: str) -> str:
        if flags.get(name) not in (None, ()):
            return "flag"
        if PREFIX + name.upper() in os.environ:
            return "environment"
        return "file" if name in in_file else "default"

    return {name: source(name) for name in Config.__struct_fields__}


def _option(name: str, hint: Any, default: object) -> Callable[[F], F]:
    base, *metas = typing.get_args(hint)
    description = next(meta.description for meta in metas if isinstance(meta, Meta) and meta.description)
    many = typing.get_origin(base) is tuple
    literal = typing.get_origin(base) is typing.Literal
    flag = "--" + (name.removesuffix("s") if many else name).replace("_", "-")
    if base in (bool, bool | None):
        return click.option(
            f"{flag}/--no-{flag[2:]}", name, default=None, help=description + ("  [default: yes]" if default else "")
        )
    shown = "" if default in ("", ()) else f"  [default: {default}]"
    return click.option(
        flag,
        name,
        multiple=many,
        # Text goes to load_config as it is, so that every wrong value is reported together, from wherever it came.
        type=str,
        metavar=f"[{'|'.join(typing.get_args(base))}]" if literal else _metavar(base),
        help=f"{description}{' Repeatable.' if many else ''}{shown}",
    )


def _metavar(base: object) -> str:
    return {int: "NUMBER", float: "NUMBER"}.get(typing.cast(type, base), "TEXT")
