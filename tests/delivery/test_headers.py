from __future__ import annotations

import pytest

from mainspring.delivery.headers import check_headers
from mainspring.errors import InvalidInput


def test_ordinary_headers_pass() -> None:
    check_headers(
        {"Authorization": "Bearer abc", "X-Tenant_1": "caf\u00e9 \t ok", "content-type": "text/plain", "x": ""}
    )


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "naïve", "a\0", "(x)", "a/b", "x\n"])
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not a header name"):
        check_headers({name: "value"})


@pytest.mark.parametrize("value", ["a\r\nhost: evil", "a\nb", "a\rb", "a\0b", "\x1b[0m", "\x7f", "日本", "line\n"])
def test_a_value_that_could_leave_its_line_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="the value of 'x-note'"):
        check_headers({"x-note": value})


CONNECTION_HEADERS = (
    "Connection HOST Content-Length Transfer-Encoding TE Trailer Upgrade Keep-Alive Proxy-Authorization "
    "proxy-connection Expect Accept-Encoding"
)


@pytest.mark.parametrize("name", CONNECTION_HEADERS.split())
def test_headers_of_the_connection_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="belongs to the connection"):
        check_headers({name: "value"})


@pytest.mark.parametrize(
    "name", ["Webhook-Id", "webhook-signature", "Idempotency-Key", "Mainspring-Attempt", "mainspring-", "Traceparent"]
)
def test_headers_that_vouch_for_us_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="reserved for Mainspring"):
        check_headers({name: "value"})


def test_every_wrong_header_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_headers({"host": "a", "fine": "b", "a/b": "c", "X-One": "1", "x-one": "2"})
    assert [error.pointer for error in caught.value.errors] == ["/headers/host", "/headers/a~1b", "/headers/x-one"]
