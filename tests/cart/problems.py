"""What a problem in an answer says."""

from __future__ import annotations

from typing import Any

import httpx


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json", response.text
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["status"], body["code"]) == (status, status, code), body
    assert isinstance(body["retryable"], bool)
    assert body["detail"]
    assert body["correlationId"] == response.headers["x-correlation-id"]
    return body


def pointers(body: dict[str, Any]) -> list[str]:
    return [each["pointer"] for each in body["errors"]]
