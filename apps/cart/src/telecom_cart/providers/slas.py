"""Who a shopper is at Salesforce: tokens by SLAS, for guests that are known by their usid.

A token lasts half an hour, a usid for ever: who logs in again with the same usid finds the same baskets, who logs in
without one is another customer. So the usid is the session that the cart keeps, and tokens are kept here, in memory.
"""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from telecom_cart.provider import Refused, Unreachable
from telecom_cart.providers.calling import Answer, Direct, Request, document_of, shown

KEPT_TOKENS = 10_000
RENEWED_BEFORE_SECONDS = 60.0


@dataclass(frozen=True)
class Token:
    usid: str
    access_token: str = field(repr=False)
    good_until: float
    """On the monotonic clock."""

    @property
    def is_good(self) -> bool:
        return time.monotonic() < self.good_until


@dataclass(frozen=True)
class TokenSource:
    """Where to log in, and as which client."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    parameters: tuple[tuple[str, str], ...] = ()


class Tokens:
    """The tokens of one client, by usid."""

    def __init__(self, source: TokenSource, direct: Direct) -> None:
        self._source = source
        self._direct = direct
        self._by_usid: dict[str, Token] = {}

    async def open(self) -> str:
        """Become a new customer."""
        return (await self._login("")).usid

    async def of(self, usid: str, *, anew: bool = False) -> str:
        """A token of this customer. `anew`: the last one was refused."""
        kept = self._by_usid.get(usid)
        if kept is None or anew or not kept.is_good:
            kept = await self._login(usid)
        return kept.access_token

    async def _login(self, usid: str) -> Token:
        source = self._source
        fields = [("grant_type", "client_credentials"), *source.parameters, *([("usid", usid)] if usid else [])]
        basic = base64.b64encode(f"{source.client_id}:{source.client_secret}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/x-www-form-urlencoded"}
        answer = await self._direct(Request("POST", source.url, headers, urlencode(fields).encode()))
        token = token_of(answer, usid)
        self._by_usid.pop(usid, None)
        self._by_usid[usid or token.usid] = token
        while len(self._by_usid) > KEPT_TOKENS:
            del self._by_usid[next(iter(self._by_usid))]
        return token


def token_of(answer: Answer, usid: str) -> Token:
    document: dict[str, Any] = document_of(answer) or {}
    access_token = document.get("access_token")
    if answer.status != 200 or not access_token:
        reason = shown(document.get("message") or document.get("error") or answer.status)
        if 400 <= answer.status < 500 and document:
            raise Refused(f"Login refused: {reason}")
        raise Unreachable(f"No usable answer to a login: {reason}")
    try:
        life = float(document.get("expires_in", 1800))
    except (TypeError, ValueError):
        life = 0.0
    got = str(document.get("usid") or usid)
    if usid and got != usid:
        # Another customer has other baskets: to go on would be to lose this one's.
        raise Unreachable("The login answered for another customer")
    return Token(got, str(access_token), time.monotonic() + max(life - RENEWED_BEFORE_SECONDS, life / 2))
