"""One frozen `Config`, read once at start from flags, `MAINSPRING_*` variables and a TOML file, in that order.

Every constant that a user may want to change is a field here, with its default and its meaning; nothing else
in the code reads the environment. A bad value is reported together with every other bad value, and so is a name
that is not a setting: a misspelt variable would otherwise silently leave the default in place.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from mainspring.crashpoint import VARIABLE as CRASH_VARIABLE
from mainspring.errors import ConfigError, FieldError, plain_words
from mainspring.text import did_you_mean, shown_url

Positive = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=1, le=2**40)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=86_400)]
DAY_MS: Final = 86_400_000


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one instance."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8700
    advertise_url: Annotated[
        str,
        Meta(
            description="URL where other instances reach this one. Empty: host and port, unless it listens everywhere."
        ),
    ] = ""
    workers: Annotated[
        int, Meta(ge=1, le=64, description="Instances on this machine that share the port, each in its own process.")
    ] = 1
    data_dir: Annotated[str, Meta(description="Directory for the embedded store and generated token.")] = ".mainspring"
    store: Annotated[
        str,
        Meta(
            description="Store URL, such as sqlite:///path or postgresql://user@host/database; see guides/databases.md."
            " Empty: mainspring.db in the data directory."
        ),
    ] = ""
    registry: Annotated[
        str,
        Meta(
            description="Store URL of the job registry, such as redis://host, where other programs may write jobs. "
            "Empty: the store."
        ),
    ] = ""
    job_base_url: Annotated[
        str, Meta(description="Base URL for the routes of jobs, such as https://app.example.com.")
    ] = ""
    job_token: Annotated[
        str,
        Meta(
            description="Bearer token for calls to the routes of jobs. It is sent to job_base_url and nowhere else. "
            "Has no flag, like token."
        ),
    ] = ""
    token: Annotated[
        str,
        Meta(
            description="Bearer token of the API, at least 22 characters. Empty: the one in token_file. Has no flag: "
            "everybody on the machine can see a process's arguments."
        ),
    ] = ""
    token_file: Annotated[
        str,
        Meta(
            description="File that holds the token of the API, readable by its owner only. Empty: the file token in "
            "the data directory, created at the first start."
        ),
    ] = ""
    allow_targets: Annotated[
        tuple[str, ...],
        Meta(description="Networks (CIDR) that callbacks may reach although not public, such as 10.1.0.0/16."),
    ] = ()
    allow_loopback: Annotated[
        bool | None,
        Meta(
            description="Whether callbacks may reach this machine. Not set: only those of a server that itself listens "
            "on a loopback address; never those of a program or an executor."
        ),
    ] = None
    ca_file: Annotated[
        str,
        Meta(
            description="PEM file with certificates of authorities to trust in addition to the system's, for calls to "
            "https URLs."
        ),
    ] = ""
    proxy_url: Annotated[
        str,
        Meta(
            description="HTTP proxy for all calls except those to this machine: http://host:port, or "
            "http://user:password@host:port. It resolves the names; see guides/security.md. Proxy variables of the "
            "environment are ignored."
        ),
    ] = ""
    secret_names: Annotated[
        tuple[str, ...],
        Meta(
            description="Headers and query parameters that are never shown, in addition to those whose names give "
            "them away; see guides/security.md."
        ),
    ] = ()
    redact_urls: Annotated[bool, Meta(description="Whether lists hide the user and secret parameters of URLs.")] = True
    allow_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Further names in the Host header that a server on loopback answers to, such as "
            "timers.internal. A server that listens elsewhere answers to every name."
        ),
    ] = ()
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Lowest level logged.")] = (
        "info"
    )
    log_format: Annotated[Literal["auto", "text", "json"], Meta(description="auto: text on a terminal, else JSON.")] = (
        "auto"
    )
    access_log: Annotated[bool, Meta(description="Whether every request to the API gets a line in the log.")] = False

    store_wait_seconds: Annotated[
        float, Meta(ge=0, le=86_400, description="How long to wait at startup for a store that cannot be reached.")
    ] = 30.0
    lease_seconds: Annotated[PositiveSeconds, Meta(description="How long shards are owned without renewal.")] = 6.0
    renew_seconds: Annotated[PositiveSeconds, Meta(description="How often the lease is renewed.")] = 2.0
    look_seconds: Annotated[
        PositiveSeconds, Meta(description="How often owners look for rows they were not notified of.")
    ] = 1.0
    drain_seconds: Annotated[PositiveSeconds, Meta(description="Longest wait at shutdown for calls in flight.")] = 10.0
    host_limit: Annotated[Positive, Meta(description="Calls in flight to one destination host.")] = 128
    in_flight_limit: Annotated[Positive, Meta(description="Calls in flight in total.")] = 1024
    window_limit: Annotated[Positive, Meta(description="Due timers held in memory at once.")] = 8192
    window_bytes: Annotated[Bytes, Meta(description="Memory for due timers; a single larger item runs alone.")] = (
        16_777_216
    )
    connect_seconds: Annotated[PositiveSeconds, Meta(description="Deadline for reaching a destination.")] = 5.0
    idle_seconds: Annotated[
        PositiveSeconds, Meta(description="How long an unused connection to a destination is kept.")
    ] = 4.0
    circuit_failures: Annotated[
        Positive, Meta(description="Consecutive failures to reach a host that open its circuit.")
    ] = 20
    circuit_seconds: Annotated[PositiveSeconds, Meta(description="How long an open circuit waits between probes.")] = (
        5.0
    )
    reschedule_seconds: Annotated[
        PositiveSeconds, Meta(description="Shortest time between a call and the next one requested by its answer.")
    ] = 1.0
    hasty_limit: Annotated[
        Positive,
        Meta(description="Consecutive answers asking for a next call in the past before the timer is parked."),
    ] = 1000
    answer_bytes: Annotated[Positive, Meta(description="How much of a callback's answer is read.")] = 65_536
    fetch_limit: Annotated[
        Positive,
        Meta(description="Fetch calls in flight; to one host, at most host_limit and a share of them."),
    ] = 2000
    fetch_drain_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="Longest wait at shutdown for calls of fetches, if longer than drain_seconds. Each ends by its "
            "timeout; others take over everything else meanwhile.",
        ),
    ] = 0.0
    fetch_pending_limit: Annotated[
        Positive, Meta(description="Fetches accepted here whose call has not ended; more are refused with 429.")
    ] = 50_000
    fetch_body_bytes: Annotated[Positive, Meta(description="Largest request body of a fetch.")] = 262_144
    fetch_answer_bytes: Annotated[Positive, Meta(description="How much of a fetch's response is kept.")] = 1_000_000
    fetch_memory_bytes: Annotated[
        int,
        Meta(ge=2**20, le=2**40, description="Memory for fetches under way; a single larger item runs alone."),
    ] = 50_331_648
    fetch_retention_days: Annotated[
        int, Meta(ge=1, le=90, description="How long an ended fetch is kept, with its result.")
    ] = 7
    origin_seconds: Annotated[
        PositiveSeconds,
        Meta(
            description="How long a method of an origin may take to receive a result; what takes longer is given up "
            "and run again."
        ),
    ] = 3600.0
    run_retention_days: Annotated[
        int, Meta(ge=1, le=3650, description="How long the job ledger keeps the outcome of an instant.")
    ] = 30
    kept_answer_bytes: Annotated[
        Bytes,
        Meta(description="Answers kept for repeats with an Idempotency-Key; beyond it, only completion is kept."),
    ] = 268_435_456
    shard_limit: Annotated[
        Positive, Meta(description="Shards of all namespaces together; a namespace that would exceed it is refused.")
    ] = 16_384
    system_shards: Annotated[
        int,
        Meta(
            ge=1,
            le=4096,
            description="Shards of each system namespace (fetches, clocks and runs of jobs) of a new cluster. What the "
            "first of them was made with stays; see guides/cluster.md.",
        ),
    ] = 16
    max_body_bytes: Annotated[Positive, Meta(description="Largest request body of the API.")] = 1_000_000
    max_payload_bytes: Annotated[Positive, Meta(description="Largest payload of a timer.")] = 102_400
    request_seconds: Annotated[PositiveSeconds, Meta(description="Deadline for receiving a whole API request.")] = 10.0
    max_connections: Annotated[
        Positive, Meta(description="Concurrent API connections; idle ones without a token make room for new ones.")
    ] = 2048
    max_tokenless_connections: Annotated[
        Positive, Meta(description="API connections from one address that have never presented a token.")
    ] = 256

    @property
    def longest_drain_seconds(self) -> float:
        """How long a stop may wait for calls of any kind."""
        return max(self.drain_seconds, self.fetch_drain_seconds)

    @property
    def fetch_retention_ms(self) -> int:
        return self.fetch_retention_days * DAY_MS

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:///{Path(self.data_dir) / 'mainspring.db'}"

    @property
    def shown_store_url(self) -> str:
        return shown_url(self.store_url)

    @property
    def token_path(self) -> Path:
        return Path(self.token_file) if self.token_file else Path(self.data_dir) / "token"


PREFIX = "MAINSPRING_"
OTHER_VARIABLES: Final = frozenset({PREFIX + "CONFIG", PREFIX + "URL", CRASH_VARIABLE})
"""Variables that are not settings: the file, the server that commands talk to, and where a test makes us crash."""
SECRET_SETTINGS: Final = ("token", "job_token")
"""Never shown, and without flags."""
SHORTEST_TOKEN: Final = 22
"""Characters of base64 that hold 128 bits."""


class Check(NamedTuple):
    """A rule that a type cannot say. It raises ConfigError, and is left out if one of its settings is wrong already."""

    settings: tuple[str, ...]
    """The first is the one named in the error."""
    run: Callable[[Config], object]


def load_config(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    *,
    checks: Sequence[Check] = (),
) -> Config:
    """Merge the sources, flags before environment before file, and check everything at once.

    `checks` are those of whoever is going to use the values; ours come before them.
    """
    environ = os.environ if environ is None else environ
    chosen = file or (Path(environ[PREFIX + "CONFIG"]) if environ.get(PREFIX + "CONFIG") else None)
    merged: dict[str, Any] = _read_file(chosen) if chosen else {}
    for name in Config.__struct_fields__:
        text = environ.get(PREFIX + name.upper())
        if text is not None:
            merged[name] = _from_text(name, text)
    merged.update({name: value for name, value in (flags or {}).items() if value is not None})
    errors = [*_unknown_variables(environ), *_wrong_values(merged)]
    wrong = {error.pointer.removeprefix("/") for error in errors}
    good = {name: value for name, value in merged.items() if name not in wrong}
    config = msgspec.convert(good, Config, strict=False)
    for check in (*_CHECKS, *checks):
        if wrong.isdisjoint(check.settings):
            try:
                check.run(config)
            except ConfigError as error:
                errors.append(FieldError(f"/{check.settings[0]}", error.detail))
    if errors:
        summary = "; ".join(f"{error.pointer[1:]}: {error.detail}" for error in errors)
        raise ConfigError(f"The configuration is not valid: {summary}", errors=tuple(errors))
    return config


def check_token(token: str) -> None:
    """Raise ConfigError for a token that could be guessed or cannot stand in a header. Never repeats it."""
    if len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"Expected at least {SHORTEST_TOKEN} characters (128 random bits in base64), got {len(token)}; "
            "`openssl rand -base64 24` makes a good one"
        )
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError("Expected visible ASCII characters only, got others")


def read_token_file(path: Path, *, generated: bool) -> str:
    """The token in a file. `generated`: a server makes a new one when it is missing.

    Raises ConfigError when it is none or others know it, OSError when there is no such file.
    """
    with path.open("rb") as file:
        _check_private(path, os.fstat(file.fileno()), generated=generated)
        data = file.read()
    try:
        token = data.decode().strip()
        check_token(token)
    except (ConfigError, UnicodeDecodeError) as error:
        reason = error.detail if isinstance(error, ConfigError) else "Expected text, got bytes that are not UTF-8"
        hint = "; remove the file, and the next start creates a new one" if generated else ""
        raise ConfigError(f"{reason}, in {path}{hint}") from error
    return token


def _check_private(path: Path, status: os.stat_result, *, generated: bool) -> None:
    """A secret that others have read is not one. Root's files may be for a group, as service managers do it."""
    if os.name != "posix":
        return
    may = 0o700 if status.st_uid in (os.geteuid(), 0) or os.geteuid() == 0 else 0
    if status.st_uid == 0 != os.geteuid():
        may |= 0o040
    if stat.S_IMODE(status.st_mode) & ~may:
        raise ConfigError(
            f"Expected a token that only its owner can read, got {path} of user {status.st_uid} with mode "
            f"{stat.S_IMODE(status.st_mode):o}; others may know the token: "
            f"{'remove the file, and the next start creates a new one' if generated else 'replace it'}, "
            f"or `chmod 600 {path}`"
        )


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[FieldError]:
    known = {PREFIX + name.upper() for name in Config.__struct_fields__} | OTHER_VARIABLES
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            yield FieldError(f"/{name}", f"unknown variable{did_you_mean(name, known)}")


def _wrong_values(merged: Mapping[str, Any]) -> Iterator[FieldError]:
    types_by_name = typing.get_type_hints(Config, include_extras=True)
    for name, value in merged.items():
        if name not in types_by_name:
            yield FieldError(f"/{name}", f"unknown setting{did_you_mean(name, types_by_name)}")
            continue
        try:
            msgspec.convert(value, types_by_name[name], strict=not isinstance(value, str))
        except msgspec.ValidationError as error:
            # What may be unset is left out; neither TOML nor a variable has a word for it.
            yield FieldError(f"/{name}", plain_words(str(error).replace(" | null`", "`"), types_by_name[name]))


def _check_token(config: Config) -> None:
    if config.token and config.token_file:
        raise ConfigError("Expected one of token and token_file, got both")
    if config.token:
        check_token(config.token)


def _check_advertised(config: Config) -> None:
    if config.advertise_url and not re.fullmatch(r"https?://[^/\s?#]+/?", config.advertise_url):
        raise ConfigError(f"Expected http://host:port, got {shown_url(config.advertise_url)!r}")


def _check_job_base(config: Config) -> None:
    if config.job_base_url and not re.fullmatch(r"https?://[^/\s?#@]+(/[^\s?#]*)?", config.job_base_url):
        raise ConfigError("Expected http(s)://host with an optional path, got something else")


def _check_job_token(config: Config) -> None:
    if config.job_token and (not (config.job_token.isascii() and config.job_token.isprintable())):
        raise ConfigError("Expected visible ASCII characters only, got others")


def _check_hosts(config: Config) -> None:
    for host in config.allow_hosts:
        if not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+|\[[0-9A-Fa-f:.]+\]", host):
            raise ConfigError(f"Expected host names without a port, got {shown_url(host)!r}")


def _check_secret_names(config: Config) -> None:
    for name in config.secret_names:
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ConfigError(f"Expected names of headers or parameters, separated by commas, got {name!r}")


def _check_ca_file(config: Config) -> None:
    if not config.ca_file:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=config.ca_file)
    except ssl.SSLError as error:
        raise ConfigError(f"Expected certificates in PEM in {config.ca_file}, got something else") from error
    except OSError as error:
        raise ConfigError(f"Expected a readable file at {config.ca_file}, got: {error.strerror}") from error


def _check_proxy(config: Config) -> None:
    if config.proxy_url and not re.fullmatch(r"http://([^/\s?#@]+@)?[^/\s?#@]+:[0-9]{1,5}/?", config.proxy_url):
        raise ConfigError(f"Expected http://host:port, got {shown_url(config.proxy_url)!r}")


def _check_renewal(config: Config) -> None:
    if config.renew_seconds * 2 > config.lease_seconds:
        raise ConfigError(
            f"Expected at most half of lease_seconds ({config.lease_seconds:g}), got {config.renew_seconds:g}"
        )


_CHECKS: Final = (
    Check(("token", "token_file"), _check_token),
    Check(("advertise_url",), _check_advertised),
    Check(("job_base_url",), _check_job_base),
    Check(("job_token",), _check_job_token),
    Check(("allow_hosts",), _check_hosts),
    Check(("ca_file",), _check_ca_file),
    Check(("proxy_url",), _check_proxy),
    Check(("secret_names",), _check_secret_names),
    Check(("renew_seconds", "lease_seconds"), _check_renewal),
)


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
