"""What brokers send, and the two stages that need nothing else: validate and triage."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct


class Line(StrEnum):
    PROPERTY = "property"
    LIABILITY = "liability"
    CYBER = "cyber"


class Submission(Struct, frozen=True):
    """What is to be insured. Fields of the envelope (`received_at`, `retry_count` …) are ignored."""

    broker: Annotated[str, Meta(min_length=1, max_length=100)]
    insured: Annotated[str, Meta(min_length=1, max_length=200)]
    country: Annotated[str, Meta(pattern="^[A-Z]{2}$")]
    line: Line
    sum_insured: Annotated[int, Meta(ge=1, le=10**12)]
    """In cents."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a submission."""

    status: str
    """priced, referred, declined, duplicate, invalid, or pending: stored, but the register could not be asked."""
    submission_id: int | None = None
    price: int | None = None
    """In cents."""
    reason: str = ""

    @property
    def is_degraded(self) -> bool:
        return self.status == "pending"


DECLINED_COUNTRIES = frozenset({"KP"})
REFERRED_ABOVE = 5_000_000_000


def validate(document: dict[str, Any]) -> Submission | Outcome:
    try:
        return msgspec.convert(document, Submission)
    except msgspec.ValidationError as error:
        return Outcome(status="invalid", reason=str(error))


def triage(submission: Submission) -> Outcome | None:
    """None for what goes on by itself."""
    if submission.country in DECLINED_COUNTRIES:
        return Outcome(status="declined", reason=f"no cover in {submission.country}")
    if submission.sum_insured > REFERRED_ABOVE:
        return Outcome(status="referred", reason="the sum is for an underwriter to decide")
    return None
