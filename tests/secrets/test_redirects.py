"""What goes along when a fetch is redirected to another origin: nothing that a caller may have meant for the first."""

from __future__ import annotations

import pytest

from mainspring.clock import SystemClock
from mainspring.delivery.call import Call, Reply
from mainspring.fetches.call import call
from mainspring.fetches.messages import OutboundRequest

SECRETS = {
    "Authorization": "Bearer a",
    "Cookie": "a=b",
    "X-Api-Key": "k",
    "Idempotency-Key": "i",
    "X-Customer": "c",
    "Webhook-Signature": "s",
}
HARMLESS = {"Accept": "text/html", "User-Agent": "mine", "Accept-Language": "de", "Range": "bytes=0-9"}


class Redirecting:
    """Answers the first request with a redirect, and keeps what was sent."""

    def __init__(self, location: str) -> None:
        self.calls: list[Call] = []
        self._location = location

    async def send(self, call: Call) -> Reply:
        self.calls.append(call)
        moved = len(self.calls) == 1
        return Reply(302 if moved else 200, {"location": self._location} if moved else {}, b"", False, "", "", True, 1)


@pytest.mark.parametrize(
    ("location", "is_same"),
    [
        ("/elsewhere", True),
        ("https://api.example/x", True),
        ("https://API.example:443/x", True),
        ("http://api.example/x", False),
        ("https://api.example:8443/x", False),
        ("https://other.example/x", False),
        ("//other.example/x", False),
    ],
)
async def test_headers_that_may_be_secret_go_to_the_first_origin_only(location: str, is_same: bool) -> None:
    sender = Redirecting(location)
    request = OutboundRequest(url="https://api.example/", headers=SECRETS | HARMLESS, max_redirects=3)
    await call(sender, request, req_id="r", timeout_ms=1000, clock=SystemClock())
    first, second = (dict(call.headers) for call in sender.calls)
    assert first == SECRETS | HARMLESS
    assert second == (first if is_same else HARMLESS)


async def test_what_was_left_behind_does_not_come_back_with_a_redirect_home() -> None:
    sender = Redirecting("https://other.example/")
    request = OutboundRequest(url="https://api.example/", headers=SECRETS, max_redirects=3)
    await call(sender, request, req_id="r", timeout_ms=1000, clock=SystemClock())
    assert set(dict(sender.calls[-1].headers)) == {"user-agent"}
