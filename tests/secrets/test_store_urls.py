"""A store URL that is wrong is often wrong because of its password: no message repeats any of it."""

from __future__ import annotations

import pytest

from mainspring.client.discovery import find_url
from mainspring.clock import SystemClock
from mainspring.config import load_config
from mainspring.delivery.guard import Guard
from mainspring.errors import ConfigError, InvalidInput
from mainspring.idempotency import SQLiteStore, UrlStore
from mainspring.stores import store_from_url
from mainspring.stores.mongodb.connection import make_client
from mainspring.text import shown_url

SERVERS = ("postgresql", "mysql", "mongodb", "cassandra", "dynamodb", "redis")
SECRET = ("hunter", "twosix")
"""The two halves of the password, on both sides of what is wrong."""


@pytest.mark.parametrize("scheme", [*SERVERS, "memory", "sqlite", "postgres", "oracle"])
@pytest.mark.parametrize(
    "rest",
    [
        ":/u:hunter@h/db",
        ":u:hunter@h/db",
        "/u:hunter@h/db",
        "//u:hunter@h/db",
        "://u:hunter/twosix@h/db",
        "://u:hunter?twosix@h/db",
        "://u:hunter#twosix@h/db",
        "://u:hunter@twosix@h:port/db",
        "://u:1/twosix@h/db",
        "://u:1?twosix@h/db",
        "://u:hunter[twosix@h/db",
        "://u:hunter\u2100twosix@h/db",
        "://u:hunter@h:99999/db",
    ],
)
def test_no_part_of_a_password_is_in_the_error_of_a_wrong_store_url(scheme: str, rest: str) -> None:
    said = ""
    try:
        store_from_url(scheme + rest, clock=SystemClock())
        if scheme == "mongodb":
            make_client(scheme + rest)
    except ConfigError as error:
        said = str(error)

    assert not any(part in said for part in SECRET)


def test_a_wrong_store_url_without_a_scheme_is_named_by_what_can_be_its_scheme_only() -> None:
    with pytest.raises(ConfigError, match=r"got one that starts with 'postgresql'$"):
        store_from_url("postgresql:/u:hunter@h/db", clock=SystemClock())
    with pytest.raises(ConfigError, match=r"got another$"):
        store_from_url("hunter@h", clock=SystemClock())


@pytest.mark.parametrize(
    "variables",
    [
        {"MAINSPRING_ADVERTISE_URL": "http://u:hunter@h/path"},
        {"MAINSPRING_ALLOW_HOSTS": "http://u:hunter@h"},
    ],
)
def test_no_part_of_a_password_is_in_the_error_of_a_wrong_setting(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(environ=variables)

    assert "hunter" not in str(refused.value)


def test_no_part_of_a_password_is_in_the_error_of_a_wrong_server_url() -> None:
    for url in ("http://u:hunter@h:8700", "u:hunter@h", "http:/u:hunter@h", "http://h:8700/?token=hunter"):
        with pytest.raises(ConfigError) as refused:
            find_url(url)
        assert "hunter" not in str(refused.value)


def test_no_part_of_a_password_is_in_the_error_of_a_wrong_network_or_target() -> None:
    with pytest.raises(ConfigError) as network:
        Guard(allow=("http://u:hunter@10.0.0.1",))
    with pytest.raises(InvalidInput) as target:
        Guard().check_url("http://u:hunter/twosix@h/")

    assert "hunter" not in f"{network.value} {target.value}"


def test_no_part_of_a_password_is_in_the_error_of_a_wrong_file_of_keys() -> None:
    with pytest.raises(ConfigError) as refused:
        SQLiteStore("postgresql://u:hunter@h/db")

    assert "hunter" not in str(refused.value)


def test_a_store_of_keys_refuses_a_url_that_cannot_be_read_without_repeating_it() -> None:
    with pytest.raises(ConfigError) as refused:
        UrlStore("postgresql://u:hunter[@h/db")

    assert "hunter" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:hunter@h/db", "postgresql://********@h/db"),
        ("postgresql:/u:hunter@h/db", "postgresql:/********@h/db"),
        ("u:hunter@h/db", "********@h/db"),
        ("redis://h/0?password=hunter&prefix=a", "redis://h/0?password=********&prefix=a"),
        ("sqlite:////var/lib/a.db", "sqlite:////var/lib/a.db"),
    ],
)
def test_a_store_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown
