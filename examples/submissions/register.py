"""The company register: an API that costs money per question, and is not always there.

A question is asked once and its answer kept for a day, whoever asks: the processor sees to that. Asking again after a
crash is harmless, because the register itself knows a question by its `Idempotency-Key`, and charges once.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from mainspring.idempotency import AsyncIdempotentProcessor, IdempotencyStore

Question = dict[str, str]


class RegisterUnavailable(Exception):
    """The register did not answer, or is left alone for a while because it did not."""


class CircuitBreaker:
    """After some failures in a row nobody asks for a while; then one may try."""

    def __init__(
        self, *, failures: int = 3, open_seconds: float = 5.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = failures
        self._open_seconds = open_seconds
        self._monotonic = monotonic
        self._failures = 0
        self._open_until = 0.0

    def check(self) -> None:
        if self._failures < self._limit:
            return
        if self._monotonic() < self._open_until:
            raise RegisterUnavailable("the circuit is open")
        self._open_until = self._monotonic() + self._open_seconds  # this one tries, the others go on waiting

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        self._failures += 1
        self._open_until = self._monotonic() + self._open_seconds


class Register:
    def __init__(self, url: str, store: IdempotencyStore, breaker: CircuitBreaker, *, timeout_seconds: float) -> None:
        self._url = url
        self._breaker = breaker
        self._timeout_seconds = timeout_seconds
        self._asking: AsyncIdempotentProcessor[Question, dict[str, Any]] = AsyncIdempotentProcessor(
            store, self._ask, scope="register", safe_to_repeat=True, lease_seconds=5
        )

    async def company(self, *, name: str, country: str) -> dict[str, Any]:
        """What the register knows. Raises `RegisterUnavailable`, which is never kept."""
        record = await self._asking.process({"name": name, "country": country})
        return record.result

    async def _ask(self, question: Question) -> dict[str, Any]:
        self._breaker.check()
        try:
            answer = await asyncio.to_thread(self._post, question)
        except (OSError, ValueError) as error:  # not reached, too late, a bad status, or no JSON
            self._breaker.failed()
            raise RegisterUnavailable(str(error)) from error
        self._breaker.succeeded()
        return answer

    def _post(self, question: Question) -> dict[str, Any]:
        body = json.dumps(question, sort_keys=True).encode()
        headers = {"content-type": "application/json", "idempotency-key": sha256(body).hexdigest()}
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310  (the operator's own address)
        with urllib.request.urlopen(request, timeout=self._timeout_seconds) as answer:  # noqa: S310
            known: dict[str, Any] = json.loads(answer.read(100_000))
        return known
