"""Who a shopper is at Salesforce: tokens by SLAS, for guests that are known by their usid.

A token lasts half an hour, a usid forever: who logs in again with the same usid finds the same baskets, who logs in
without one is another customer. So the usid is the session that the cart keeps, and tokens are kept here, in memory.
"""

from __future__ import annotations

import base64
import re
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from telecom_cart.provider import Refused, Unreachable
from telecom_cart.providers.calling import Answer, Direct, Request
from telecom_cart.providers.reading import Unreadable, code_of, document_of, optional_text, shown, understood, whole

KEPT_TOKENS = 10_000
RENEWED_BEFORE_SECONDS = 60.0
_TOKEN = re.compile(r"[\x21-\x7e]{1,8192}")


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
        usid = (await self._login("")).usid
        if not usid:
            raise Unreachable("The login answered for nobody")
        return usid

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


@understood()
def token_of(answer: Answer, usid: str) -> Token:
    document: dict[str, Any] = document_of(answer) or {}
    if answer.status != 200 or not document.get("access_token"):
        told = shown(document.get("message")) or shown(document.get("error_description"))
        if 400 <= answer.status < 500 and document:
            code = code_of(document.get("error"))
            raise Refused(f"The platform refused the login{f': {code}' if code else ''}", told=told)
        raise Unreachable(f"No usable answer to a login: {answer.status}", told=told)
    access_token = document["access_token"]
    if not isinstance(access_token, str) or not _TOKEN.fullmatch(access_token):
        raise Unreadable("Expected a token that can be sent in a header")
    life = whole(document.get("expires_in", 1800))
    got = optional_text(document.get("usid")) or usid
    if usid and got != usid:
        # Another customer has other baskets: to go on would be to lose this one's.
        raise Unreachable("The login answered for another customer")
    return Token(got, access_token, time.monotonic() + max(life - RENEWED_BEFORE_SECONDS, life / 2))
