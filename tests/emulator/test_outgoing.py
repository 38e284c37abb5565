"""Callbacks of an emulator are accepted by receivers that know nothing of its time."""

from __future__ import annotations

from mainspring.clock import wall_ms
from mainspring.delivery.call import Call
from mainspring.delivery.sender import Sender
from mainspring.delivery.signatures import new_secret, verify
from mainspring.delivery.webhook import signed_headers
from mainspring.emulator.clock import VirtualClock
from mainspring.emulator.outgoing import CLOCK_HEADER, Outgoing

SECRETS = (new_secret(b"k" * 32), new_secret(b"l" * 32))
OTHERS = (new_secret(b"m" * 32),)
LATER_MS = 1_900_000_000_000


def _outgoing() -> Outgoing:
    return Outgoing(VirtualClock(at_ms=LATER_MS), Sender, lambda: [OTHERS, SECRETS])


def _signed(secrets: tuple[str, ...]) -> Call:
    headers = signed_headers(secrets, delivery_id="msg_1", body=b"{}", attempt=1, now=LATER_MS)
    return Call("POST", "https://example.com/", (("content-type", "application/json"), *headers), b"{}", 1000)


def test_a_signature_carries_the_machines_time_and_the_header_that_of_the_emulator() -> None:
    headers = dict(_outgoing().stamped(_signed(SECRETS)).headers)
    for secret in SECRETS:  # a rotation goes on
        verify((secret,), headers, b"{}", now=wall_ms() // 1000)
    assert headers[CLOCK_HEADER] == "2030-03-17T17:46:40Z"
    assert headers["idempotency-key"] == "msg_1"


def test_what_was_signed_with_an_unknown_secret_is_left_as_it_is() -> None:
    call = _signed((new_secret(b"z" * 32),))
    assert dict(call.headers).items() <= dict(_outgoing().stamped(call).headers).items()


def test_a_call_without_a_signature_is_sent_as_it_was_asked_for() -> None:
    call = Call("GET", "https://example.com/", (("accept", "text/html"),), b"", 1000)
    assert _outgoing().stamped(call) == call
