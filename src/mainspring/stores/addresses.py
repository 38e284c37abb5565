"""Takes the URL of a server apart, and never repeats it: what makes it wrong may be its password."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, urlsplit

from mainspring.errors import ConfigError


def split_url(url: str, form: str) -> tuple[SplitResult, dict[str, str]]:
    """Its parts and its options. `form` is what a good URL looks like, for errors."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ConfigError(f"Expected {form}, got an address that cannot be read") from None
    if "@" in parts.path + parts.query + parts.fragment:
        # The password ends where urlsplit says, or an option is called like the rest of it.
        raise ConfigError(f"Expected {form}, with special characters of the password percent-encoded, got others")
    if parts.fragment:
        raise ConfigError(f"Expected {form}, got '#'")
    return parts, options


def port_of(parts: SplitResult, default: int, form: str) -> int:
    try:
        return parts.port or default
    except ValueError:
        raise ConfigError(f"Expected {form}, got something other than a port") from None
