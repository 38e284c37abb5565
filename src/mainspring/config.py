"""One frozen `Config`, read once at start from flags, `MAINSPRING_*` variables and a TOML file, in that order.

Every constant that a user may want to change is a field here, with its default and its meaning; nothing else
in the code reads the environment. A bad value is reported together with every other bad value.
"""

from __future__ import annotations

import os
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from mainspring.errors import ConfigError, FieldError

Positive = Annotated[int, Meta(ge=1, le=1_000_000)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=86_400)]


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one instance."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8700
    advertise_url: Annotated[
        str,
        Meta(
            description="Where other instances reach this one. Empty: its host and port, unless it listens everywhere."
        ),
    ] = ""
    workers: Annotated[
        int, Meta(ge=1, le=64, description="Instances on this machine behind the one port, each in its own process.")
    ] = 1
    data_dir: Annotated[str, Meta(description="Where the embedded store and the generated token live.")] = ".mainspring"
    store: Annotated[
        str,
        Meta(
            description="Store URL, such as sqlite:///path or postgresql://user@host/database; see guides/databases.md."
            " Empty: mainspring.db in the data directory."
        ),
    ] = ""
    token: Annotated[
        str, Meta(description="Bearer token of the API. Empty: generated once into the data directory.")
    ] = ""
    allow_targets: Annotated[
        tuple[str, ...],
        Meta(description="Networks (CIDR) that callbacks may reach although they are not public, such as 10.1.0.0/16."),
    ] = ()
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Least severe log line.")] = (
        "info"
    )
    log_format: Annotated[Literal["auto", "text", "json"], Meta(description="auto: text on a terminal, else JSON.")] = (
        "auto"
    )

    store_wait_seconds: Annotated[
        float, Meta(ge=0, le=86_400, description="How long a start waits for a store that cannot be reached.")
    ] = 30.0
    lease_seconds: Annotated[PositiveSeconds, Meta(description="How long an instance owns its shards unrenewed.")] = 6.0
    renew_seconds: Annotated[PositiveSeconds, Meta(description="How often the lease is renewed.")] = 2.0
    look_seconds: Annotated[
        PositiveSeconds, Meta(description="How often owners look for rows that nobody announced.")
    ] = 1.0
    drain_seconds: Annotated[PositiveSeconds, Meta(description="How long a stop waits for calls in flight.")] = 10.0
    host_limit: Annotated[Positive, Meta(description="Calls in flight to one destination host.")] = 128
    in_flight_limit: Annotated[Positive, Meta(description="Calls in flight in all.")] = 1024
    window_limit: Annotated[Positive, Meta(description="Due timers held in memory at once.")] = 8192
    connect_seconds: Annotated[PositiveSeconds, Meta(description="Deadline for reaching a destination.")] = 5.0
    idle_seconds: Annotated[
        PositiveSeconds, Meta(description="How long an unused connection to a destination is kept.")
    ] = 4.0
    circuit_failures: Annotated[
        Positive, Meta(description="Failures in a row to reach a host that open its circuit.")
    ] = 20
    circuit_seconds: Annotated[PositiveSeconds, Meta(description="How long an open circuit waits between probes.")] = (
        5.0
    )
    answer_bytes: Annotated[Positive, Meta(description="How much of a callback's answer is read.")] = 65_536
    max_body_bytes: Annotated[Positive, Meta(description="Largest request body of the API.")] = 1_000_000
    max_payload_bytes: Annotated[Positive, Meta(description="Largest payload of a timer.")] = 102_400
    request_seconds: Annotated[PositiveSeconds, Meta(description="Deadline for receiving a whole API request.")] = 10.0
    max_connections: Annotated[Positive, Meta(description="API connections at once; more are refused with 503.")] = 2048

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:///{Path(self.data_dir) / 'mainspring.db'}"

    @property
    def shown_store_url(self) -> str:
        """The URL without what only its user may know."""
        without_user = re.sub(r"(?<=://).*@", "********@", self.store_url)
        return re.sub(r"(?i)(password|secret|token|key)=[^&]*", r"\1=********", without_user)

    @property
    def token_path(self) -> Path:
        return Path(self.data_dir) / "token"


PREFIX = "MAINSPRING_"


def load_config(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Config:
    """Merge the sources, flags before environment before file, and check everything at once."""
    environ = os.environ if environ is None else environ
    chosen = file or (Path(environ[PREFIX + "CONFIG"]) if environ.get(PREFIX + "CONFIG") else None)
    merged: dict[str, Any] = _read_file(chosen) if chosen else {}
    errors = [FieldError(f"/{name}", "unknown setting") for name in merged if name not in Config.__struct_fields__]
    for name in Config.__struct_fields__:
        text = environ.get(PREFIX + name.upper())
        if text is not None:
            merged[name] = _from_text(name, text)
    merged.update({name: value for name, value in (flags or {}).items() if value is not None})
    types_by_name = typing.get_type_hints(Config, include_extras=True)
    for name, value in merged.items():
        if name not in types_by_name:
            continue
        try:
            msgspec.convert(value, types_by_name[name], strict=not isinstance(value, str))
        except msgspec.ValidationError as error:
            errors.append(FieldError(f"/{name}", str(error)))
    if errors:
        summary = "; ".join(f"{error.pointer[1:]}: {error.detail}" for error in errors)
        raise ConfigError(f"Expected a valid configuration, got: {summary}", errors=tuple(errors))
    config = msgspec.convert(merged, Config, strict=False)
    if config.advertise_url and not re.fullmatch(r"https?://[^/\s?#]+/?", config.advertise_url):
        raise ConfigError(f"Expected advertise_url to be http://host:port, got {config.advertise_url!r}")
    if config.renew_seconds * 2 > config.lease_seconds:
        raise ConfigError("Expected renew_seconds to be at most half of lease_seconds")
    return config


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"Expected a readable TOML file at {path}, got: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"Expected TOML in {path}, got: {error}") from error


def _from_text(name: str, text: str) -> Any:
    """Environment values are text; lists are separated by commas."""
    hint = typing.get_type_hints(Config)[name]
    if typing.get_origin(hint) is tuple or isinstance(hint, types.GenericAlias):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text
