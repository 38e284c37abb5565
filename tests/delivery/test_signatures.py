from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from mainspring.delivery.signatures import check_secret, new_secret, sign, verify
from mainspring.errors import InvalidInput

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD, NEW = new_secret(b"o" * 24), new_secret(b"n" * 64)
NOW = 1_700_000_000


def headers(signature: str, *, message_id: str = "msg_1", timestamp: object = NOW) -> dict[str, str]:
    return {"Webhook-Id": message_id, "Webhook-Timestamp": str(timestamp), "Webhook-Signature": signature}


def test_the_published_vector_is_reproduced() -> None:
    signature = sign(
        [SECRET], message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp=1614265330, body=b'{"test": 2432232314}'
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(
    key=st.binary(min_size=24, max_size=64),
    message_id=st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
    timestamp=st.integers(0, 2**33),
    body=st.text(),
)
def test_signatures_are_those_of_the_reference_library(key: bytes, message_id: str, timestamp: int, body: str) -> None:
    secret = new_secret(key)
    reference = Webhook(secret).sign(message_id, datetime.fromtimestamp(timestamp, UTC), body)
    assert sign([secret], message_id=message_id, timestamp=timestamp, body=body.encode()) == reference


def test_the_reference_library_accepts_both_signatures_of_a_rotation() -> None:
    now = int(datetime.now(UTC).timestamp())
    signature = sign([NEW, OLD], message_id="msg_1", timestamp=now, body=b"{}")
    for secret in (OLD, NEW):
        assert Webhook(secret).verify(b"{}", headers(signature, timestamp=now)) == {}
        verify([secret], headers(signature, timestamp=now), b"{}", now=now)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(b"{}", headers(signature, timestamp=now))


def test_a_receiver_may_hold_two_secrets() -> None:
    signature = sign([OLD], message_id="msg_1", timestamp=NOW, body=b"x")
    verify([NEW, OLD], headers(signature), b"x", now=NOW)


def test_a_changed_message_is_refused() -> None:
    signature = sign([OLD], message_id="msg_1", timestamp=NOW, body=b"x")
    for changed in (headers(signature, message_id="msg_2"), headers(signature, timestamp=NOW + 1)):
        with pytest.raises(InvalidInput, match="none that matches"):
            verify([OLD], changed, b"x", now=NOW)
    with pytest.raises(InvalidInput, match="none that matches"):
        verify([OLD], headers(signature), b"y", now=NOW)
    with pytest.raises(InvalidInput, match="none that matches"):
        verify([NEW], headers(signature), b"x", now=NOW)


def test_a_message_from_another_time_is_refused() -> None:
    signature = sign([OLD], message_id="msg_1", timestamp=NOW, body=b"")
    verify([OLD], headers(signature), b"", now=NOW + 300)
    for now in (NOW + 301, NOW - 301):
        with pytest.raises(InvalidInput, match="within 300 s"):
            verify([OLD], headers(signature), b"", now=now)


@pytest.mark.parametrize("missing", ["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"])
def test_a_missing_header_is_named(missing: str) -> None:
    given_headers = headers("v1,x")
    del given_headers[missing]
    with pytest.raises(InvalidInput, match=f"Expected the header {missing.lower()}"):
        verify([OLD], given_headers, b"", now=NOW)


@pytest.mark.parametrize("timestamp", ["soon", "1e9", "-1", "1.5", "NaN", "١٢٣", "9" * 5000, "inf"])
def test_a_malformed_timestamp_is_refused(timestamp: str) -> None:
    with pytest.raises(InvalidInput, match="webhook-timestamp"):
        verify([OLD], headers("v1,x", timestamp=timestamp), b"", now=NOW)


@pytest.mark.parametrize("signature", ["v1", "v1,", ",", "v1,not base64!", "v1a,xyz", "v2,abc", "v1,é\ud800", "a b c,"])
def test_a_malformed_signature_is_refused(signature: str) -> None:
    with pytest.raises(InvalidInput, match="none that matches"):
        verify([OLD], headers(signature), b"", now=NOW)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "secret_" + base64.b64encode(b"k" * 32).decode(),
        "whsec_" + base64.b64encode(b"k" * 23).decode(),
        "whsec_" + base64.b64encode(b"k" * 65).decode(),
        "whsec_" + base64.b64encode(b"k" * 32).decode().rstrip("="),
        "whsec_!!!!" + base64.b64encode(b"k" * 32).decode(),
        "whsec_é" + base64.b64encode(b"k" * 32).decode(),
    ],
)
def test_a_secret_that_is_none_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidInput, match="Expected a secret of the form whsec_") as caught:
        check_secret(secret)
    assert not secret[6:] or secret[6:] not in str(caught.value)


def test_new_secrets_are_valid() -> None:
    check_secret(new_secret(b"r" * 32))
    with pytest.raises(InvalidInput):
        new_secret(b"short")
