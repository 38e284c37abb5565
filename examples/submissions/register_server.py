"""A stand-in for the company register: answers, counts its calls, charges once per key, and fails on command."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Self

FEE_CENTS = 250


class RegisterServer(ThreadingHTTPServer):
    """Use as a context manager: it serves in a thread until the block ends."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.lock = Lock()
        self.calls: list[str] = []
        """The names that were asked for, in order."""
        self.charged: dict[str, int] = {}
        """The fee by idempotency key."""
        self.is_failing = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/companies"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self.serve_forever, args=(0.02,), name="register")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: RegisterServer
    timeout = 10

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.calls.append(question["name"])
            failing = self.server.is_failing
            if not failing:
                self.server.charged.setdefault(self.headers["idempotency-key"], FEE_CENTS)
        # A company's risk follows from its name, so that the same question has the same answer.
        body = b"{}" if failing else json.dumps({"risk": 1 + len(question["name"]) % 5}).encode()
        self.send_response(503 if failing else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""
