"""How calls leave this machine: which authorities are trusted besides the system's, and through which proxy.

With a proxy, the guard still reads every URL and refuses literal addresses and names that it may not call. But it is
the proxy that resolves names and dials: which addresses a name may have is then for the proxy to judge. This machine is
called directly, because to a proxy its name would mean the proxy's own machine.

- `https`: a tunnel (CONNECT). What the proxy refuses was never sent; inside, TLS is spoken with the target itself.
- `http`: the proxy is asked for the whole URL, so an answer may be its own.
"""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Final, cast
from urllib.parse import unquote

from msgspec import Struct

from mainspring.config import Config
from mainspring.delivery.address import is_loopback
from mainspring.delivery.guard import Guard, Target
from mainspring.errors import ConfigError, InvalidInput

ANSWER_LIMIT: Final = 16_384
"""How much a proxy may say before the tunnel is open."""
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r\n]")


class Egress(Struct, frozen=True, kw_only=True):
    """The settings. Empty: the system's authorities alone, and no proxy."""

    ca_file: str = ""
    proxy_url: str = ""


def egress_of(config: Config) -> Egress:
    return Egress(ca_file=config.ca_file, proxy_url=config.proxy_url)


class Proxy:
    """A proxy, at an address that the operator has chosen: none is forbidden."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        credentials, _, place = rest.rpartition("@")
        self.guard = Guard(allow=("0.0.0.0/0", "::/0"), allow_loopback=True)
        try:
            self.target = self.guard.check_url(f"{scheme}://{place}")
        except InvalidInput as error:
            raise ConfigError(f"Expected http://host:port as the proxy, got something else: {error.detail}") from error
        if self.target.scheme != "http":
            raise ConfigError("Expected a proxy that is reached over http, got https")
        self.headers: tuple[tuple[str, str], ...] = ()
        if credentials:
            encoded = base64.b64encode(unquote(credentials).encode()).decode()
            self.headers = (("proxy-authorization", f"Basic {encoded}"),)

    def carries(self, target: Target) -> bool:
        return not is_loopback(target.host)

    def tunnel(self, target: Target, loop: asyncio.AbstractEventLoop) -> Tunnel:
        lines = [f"CONNECT {target.destination} HTTP/1.1", f"host: {target.destination}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return Tunnel("\r\n".join((*lines, "\r\n")).encode("latin-1"), loop)


class Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel. `opened` raises OSError if it does not open one."""

    def __init__(self, request: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self._request = request
        self._answer = bytearray()
        self.opened: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do everything that an asyncio.Transport does without being one.
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if self.opened.done():
            return
        if b"\r\n\r\n" not in self._answer:
            if len(self._answer) > ANSWER_LIMIT:
                self._refuse(f"more than {ANSWER_LIMIT} bytes from the proxy before the tunnel was open")
            return
        status = _STATUS.match(self._answer)
        if status is None:
            self._refuse("something other than HTTP from the proxy")
        elif not status[1].startswith(b"2"):
            self._refuse(f"the answer {status[1].decode()} from the proxy")
        else:
            self.opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._refuse("the end of the connection to the proxy")

    def _refuse(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ProxyRefusal(reason))
            self.opened.exception()  # whoever dials may have given up


class ProxyRefusal(OSError):
    """No tunnel: nothing was sent to the target."""
