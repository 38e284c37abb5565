"""Where the server is and which token to use, if the program does not say.

The URL: argument, `MAINSPRING_URL`, else the default address. The token: argument, `MAINSPRING_TOKEN` or
`MAINSPRING_TOKEN_FILE`, the configuration file, else the token file in the data directory. The last two belong to the
server that is configured there, and are sent only to this machine or the address it listens on: a secret found by
chance must not travel to whatever host a URL names.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from mainspring.config import PREFIX, load_config, read_token_file
from mainspring.delivery.address import is_loopback
from mainspring.errors import ConfigError
from mainspring.text import shown_url

DEFAULT_URL = "http://127.0.0.1:8700"


def find_url(url: str | None) -> str:
    """The server's address without a trailing slash. Raises ConfigError if it is not an http(s) URL."""
    chosen = url or os.environ.get(PREFIX + "URL") or DEFAULT_URL
    if not isinstance(chosen, str):
        raise ConfigError(f"Expected a server URL such as {DEFAULT_URL}, got {chosen!r:.100}")
    try:
        parts = urlsplit(chosen)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(f"Expected a server URL such as {DEFAULT_URL}, got {shown_url(chosen)!r}")
    return chosen.rstrip("/")


def find_token(token: str | None, *, url: str) -> str:
    """The bearer token, or an empty string if none is found."""
    if token:
        return _checked(token)
    config = load_config()
    is_given = any(os.environ.get(PREFIX + name) for name in ("TOKEN", "TOKEN_FILE"))
    if not is_given and not _is_at_home(url, config.host):
        return ""
    if config.token:
        return _checked(config.token)
    if config.token_file:
        return token_in(config.token_path)
    return token_in(config.token_path, generated=True) if config.token_path.exists() else ""


def token_in(path: Path, *, generated: bool = False) -> str:
    """The token in a named or generated file. Raises ConfigError if there is none, or if others may read it."""
    try:
        return read_token_file(path, generated=generated)
    except OSError as error:
        raise ConfigError(f"Expected a readable token file at {path}, got: {error.strerror}") from error


def _checked(token: str) -> str:
    if not isinstance(token, str) or not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError("Expected a token of visible ASCII characters only, got others")
    return token


def _is_at_home(url: str, listens_on: str) -> bool:
    """Whether a URL names this machine, or the address that the server of this configuration listens on.

    A token follows from that, so names below `.localhost` are not enough: some resolvers ask others about them.
    """
    host = urlsplit(url).hostname or ""
    is_here = is_loopback(host) and not host.removesuffix(".").endswith(".localhost")
    return is_here or (host == listens_on.lower() and host not in ("0.0.0.0", "::"))  # noqa: S104
