"""Sends one HTTP request and brings back what became of it. The heart of the product, so it is ours, and thin.

- **Never sent twice.** A request is written to one connection once. What is lost after that is reported as lost, with
  `sent=True`; what is lost before is reported with `sent=False`. Redirects are an answer, not an instruction.
- **Always ends.** Lookup, connecting and the TLS handshake have one deadline, the whole call another. Every failure
  is a `Reply`; the only exception that leaves `send` is cancellation, which closes the connection.
- **Lack of a descriptor is our own problem.** Without one, idle connections are closed and dialling goes on until its
  deadline. Then the call was not made (`exhausted`), and whoever asked for it must not count it.
- **Only where the guard allows.** The address that was checked is the address that is dialled; the certificate and
  the name in the handshake are those of the URL. With a proxy, see `egress`.

Retries, limits and circuits are decided elsewhere.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from types import TracebackType
from typing import Final, Protocol, Self

from mainspring.delivery.address import Address
from mainspring.delivery.call import Call, Problem, Reply, Sends, failed
from mainspring.delivery.connection import Connection, describe
from mainspring.delivery.egress import Egress, Proxy
from mainspring.delivery.guard import Guard, Target
from mainspring.delivery.pool import Pool
from mainspring.descriptors import has_one, is_want_of_one
from mainspring.errors import InvalidInput, UnsafeTarget

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
DIRECT: Final = Egress()
_DIAL_LIMIT: Final = 8
_DESCRIPTOR_SECONDS: Final = 0.05
"""The pause between two checks whether there is a descriptor."""


class _Unreached(Exception):
    """No connection was made, so nothing was sent."""

    def __init__(self, problem: Problem, detail: str) -> None:
        self.problem: Problem = problem
        self.detail = detail
        super().__init__(detail)


class OpenSender(Sends, Protocol):
    """A sender to be used as `async with`."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class MakesSenders(Protocol):
    """Makes senders that go only where `guard` allows: `Sender`, or what a simulation uses in its place."""

    def __call__(
        self,
        *,
        guard: Guard,
        connect_seconds: float = ...,
        idle_seconds: float = ...,
        answer_bytes: int = ...,
        max_idle_per_host: int = ...,
        egress: Egress = ...,
    ) -> OpenSender: ...


class Sender:
    """`async with Sender(guard=...) as sender: reply = await sender.send(call)`."""

    def __init__(
        self,
        *,
        guard: Guard,
        connect_seconds: float = 5.0,
        idle_seconds: float = 4.0,
        answer_bytes: int = 65_536,
        max_idle_per_host: int = 128,
        egress: Egress = DIRECT,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard
        self._ca_file = egress.ca_file
        self._proxy = Proxy(egress.proxy_url) if egress.proxy_url else None
        self._connect_seconds = connect_seconds
        self._idle_seconds = idle_seconds
        self._answer_bytes = answer_bytes
        self._max_idle_per_host = max_idle_per_host
        self._ssl_context = ssl_context

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(self._loop, idle_seconds=self._idle_seconds, max_idle_per_origin=self._max_idle_per_host)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.close()

    async def send(self, call: Call) -> Reply:
        """Make the call, and say how it ended. Raises nothing but CancelledError."""
        started = self._loop.time()
        try:
            target = self._guard.check_url(call.url)
            request = render(call, target, self._proxy_of(target))
        except (InvalidInput, UnsafeTarget) as error:
            return self._unsent("refused", error.detail, started)
        method, room, sent, fresh = call.method, call.room, call.sent, call.fresh
        deadline = started + call.timeout_ms / 1000
        del call  # its content is in the request; a second reference would keep it in memory until the answer
        connection = None if fresh else self._pool.take((target.scheme, target.destination), started)
        if connection is None:
            try:
                connection = await self._dial(target, started, deadline)
            except _Unreached as unreached:
                return self._unsent(unreached.problem, unreached.detail, started)
        answer = connection.exchange(
            request, head=method == "HEAD", started=started, deadline=deadline, room=room, sent=sent
        )
        del request
        try:
            return await answer
        except asyncio.CancelledError:
            # When the answer came first, the connection may already carry somebody else's call.
            if answer.cancelled():
                connection.abort()
            raise

    def _unsent(self, problem: Problem, detail: str, started: float) -> Reply:
        return failed(problem, detail, sent=False, duration_ms=round((self._loop.time() - started) * 1000))

    async def _dial(self, target: Target, started: float, deadline: float) -> Connection:
        """A new connection to an address that the guard has just checked."""
        limit = min(deadline, started + self._connect_seconds)
        try:
            async with asyncio.timeout_at(limit):
                return await self._find_and_connect(target, limit)
        except UnsafeTarget as error:
            raise _Unreached("refused", error.detail) from error
        except TimeoutError as error:
            waited = f"{limit - started:.6g} s"
            raise _Unreached(
                "timeout", f"Expected a connection to {target.destination} within {waited}, got none"
            ) from error
        except (OSError, UnicodeError) as error:  # ssl.SSLError and socket.gaierror are OSErrors
            if isinstance(error, OSError) and is_want_of_one(error):
                raise _Unreached("exhausted", "Expected a file descriptor for the call, got none") from error
            raise _Unreached(
                "network", f"Expected a connection to {target.destination}, got: {describe(error)}"
            ) from error

    async def _find_and_connect(self, target: Target, limit: float) -> Connection:
        while True:
            try:
                proxy = self._proxy_of(target)
                guard, dialled = (self._guard, target) if proxy is None else (proxy.guard, proxy.target)
                addresses = await guard.resolve(dialled)
                return await self._connect_any(target, addresses[:_DIAL_LIMIT], limit)
            except OSError as error:
                if not is_want_of_one(error) or self._loop.time() + 2 * _DESCRIPTOR_SECONDS > limit:
                    raise
            self._pool.close_idle()
            await asyncio.sleep(_DESCRIPTOR_SECONDS)

    async def _connect_any(self, target: Target, addresses: list[Address], limit: float) -> Connection:
        """Try the addresses in turn; each may use an equal share of the time that is left."""
        for untried in range(len(addresses) - 1, 0, -1):
            now = self._loop.time()
            try:
                async with asyncio.timeout_at(now + (limit - now) / (untried + 1)):
                    return await self._connect(target, addresses[-untried - 1])
            except OSError as error:  # including a share that ran out
                if is_want_of_one(error):
                    raise
        return await self._connect(target, addresses[-1])

    async def _connect(self, target: Target, address: Address) -> Connection:
        proxy = self._proxy_of(target)
        secure = target.scheme == "https"
        if proxy is not None and secure:
            connection = await self._connect_through(proxy, target, address)
        else:
            _, connection = await self._loop.create_connection(
                lambda: self._connection(target),
                str(address),
                target.port if proxy is None else proxy.target.port,
                ssl=self._tls() if secure else None,
                server_hostname=target.host if secure else None,
            )
        self._pool.adopt(connection)
        return connection

    async def _connect_through(self, proxy: Proxy, target: Target, address: Address) -> Connection:
        context = self._tls()
        transport, tunnel = await self._loop.create_connection(
            lambda: proxy.tunnel(target, self._loop), str(address), proxy.target.port
        )
        connection = self._connection(target)
        try:
            await tunnel.opened
            secured = await self._loop.start_tls(transport, connection, context, server_hostname=target.host)
        except BaseException:
            transport.abort()
            raise
        if secured is None:
            raise OSError("the connection through the proxy was closed")
        connection.connection_made(secured)
        return connection

    def _connection(self, target: Target) -> Connection:
        return Connection(self._pool, (target.scheme, target.destination), self._loop, self._answer_bytes)

    def _proxy_of(self, target: Target) -> Proxy | None:
        return self._proxy if self._proxy is not None and self._proxy.carries(target) else None

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            if not has_one():  # a context made now would trust nobody, for ever
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            # Made at the first use: reading the system's certificates takes a while and plain HTTP needs none.
            self._ssl_context = ssl.create_default_context()
            if self._ca_file:
                self._ssl_context.load_verify_locations(cafile=self._ca_file)
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        return self._ssl_context


def render(call: Call, target: Target, proxy: Proxy | None = None) -> bytes:
    """The request as bytes. Raises `InvalidInput` for what cannot be written as one HTTP request.

    A proxy is told the whole URL, unless there is a tunnel through it.
    """
    if call.method not in METHODS:
        raise InvalidInput(f"Expected one of the methods {', '.join(sorted(METHODS))}, got {call.method!r}")
    length = f"content-length: {len(call.body)}\r\n" if call.body or call.method not in _WITHOUT_BODY else ""
    headers = "".join([f"{name}: {value}\r\n" for name, value in call.headers])
    # Headers were checked when they were accepted. This is the last line of defence: no value may end its own line.
    if not headers.count("\n") == headers.count("\r") == len(call.headers) or "\0" in headers:
        raise InvalidInput("Expected headers without line breaks, got one in a name or a value")
    what = target.path_and_query
    if proxy is not None and target.scheme == "http":
        what = f"http://{target.host_header}{what}"
        headers += "".join([f"{name}: {value}\r\n" for name, value in proxy.headers])
    head = (
        f"{call.method} {what} HTTP/1.1\r\nhost: {target.host_header}\r\n"
        f"accept-encoding: identity\r\n{length}{headers}\r\n"
    )
    try:
        return head.encode("latin-1") + call.body
    except UnicodeEncodeError as error:
        raise InvalidInput("Expected headers in Latin-1, got other characters") from error
