"""A small HTTP server that prints the callbacks it gets and answers as configured; for trying things out.

One thread per connection; bodies over a bound are refused; it listens only where it was asked to.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Final

import click
from msgspec import Struct

from mainspring.api.listener import cannot_listen
from mainspring.client.callback import callback_answer
from mainspring.clock import wall_ms
from mainspring.delivery.signatures import verify
from mainspring.errors import InvalidInput
from mainspring.text import printable

LONGEST_BODY: Final = 10_000_000
LONGEST_NUMBER: Final = 18
WITHOUT_BODY = ("GET", "HEAD", "DELETE")
FAILURE: Final = 500


class Script(Struct, frozen=True, kw_only=True):
    """How callbacks are answered."""

    status: int = 200
    fail_first: int = 0
    next_in_seconds: float | None = None
    delay_seconds: float = 0.0
    secrets: tuple[str, ...] = ()
    body: bytes | None = None

    def answer(self, attempt: int) -> tuple[int, bytes]:
        """The status and body for this attempt of a delivery; attempts count from 1."""
        if attempt <= self.fail_first:
            return FAILURE, b'{"ok":false}'
        if self.body is not None:
            return self.status, self.body
        again = None
        if self.next_in_seconds is not None:
            again = datetime.now(UTC) + timedelta(seconds=self.next_in_seconds)
        return self.status, callback_answer(ok=self.status < 300, next_execute_at=again)

    def judge(self, headers: dict[str, str], body: bytes) -> str:
        """What to say of the signature."""
        if not self.secrets:
            return "not checked (give --secret)"
        try:
            verify(self.secrets, headers, body, now=wall_ms() // 1000)
        except InvalidInput as error:
            return f"INVALID: {error.detail}"
        return "valid"


class DevReceiver(ThreadingHTTPServer):
    """Listens from its making on; `server_address` says where."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, script: Script) -> None:
        self.script = script
        self.printing = Lock()
        super().__init__((host, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A peer that goes away is no error of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    server: DevReceiver

    def do_POST(self) -> None:
        length = _number(self.headers.get("content-length", "0" if self.command in WITHOUT_BODY else ""))
        if length is None or length > LONGEST_BODY:
            self.close_connection = True
            self._answer(413, b"")
            return
        body = self.rfile.read(length)
        headers = dict(self.headers.items())
        attempt = self.headers.get("mainspring-attempt", "1")
        script = self.server.script
        status, answer = script.answer(_number(attempt) or 1)
        with self.server.printing:
            place = f"{self.command} {self.path}"
            click.echo(describe(place, headers, body, signature=script.judge(headers, body), status=status))
        time.sleep(script.delay_seconds)
        self._answer(status, answer)

    do_GET = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815  (jobs choose their method)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: `describe` says more."""


def _number(text: str) -> int | None:
    """What a header says, if that is a number: `isdigit` knows more digits than `int` does, and `int` has a limit."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER else None


def describe(place: str, headers: dict[str, str], body: bytes, *, signature: str, status: int) -> str:
    """One callback as text for people."""
    lines = [f"── {datetime.now().astimezone():%H:%M:%S.%f} {place} → {status}", f"signature: {signature}"]
    lines += [f"{name.lower()}: {value}" for name, value in sorted(headers.items())]
    lines = [printable(line) for line in lines]
    try:
        text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "backslashreplace")
    return "\n".join([*lines, *(printable(line) for line in text.split("\n")), ""])


def receive_until_interrupted(host: str, port: int, script: Script) -> None:
    try:
        receiver = DevReceiver(host, port, script)
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    with receiver:
        bound = receiver.server_address
        click.echo(f"Receiving at http://{host}:{bound[1]}/ (Ctrl-C ends)", err=True)
        try:
            receiver.serve_forever()
        except KeyboardInterrupt:
            click.echo("", err=True)
