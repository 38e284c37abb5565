"""The five stages: validate, triage, deduplicate, enrich, store. Nothing here knows of queues or repeats."""

from __future__ import annotations

import asyncio
from typing import Any

from .database import Database, Stored
from .register import Register, RegisterUnavailable
from .similarity import normalised
from .submission import Line, Outcome, Submission, triage, validate

RATE_PER_MILLION = {Line.PROPERTY: 1_200, Line.LIABILITY: 2_500, Line.CYBER: 4_000}


class Pipeline:
    def __init__(self, database: Database, register: Register) -> None:
        self._database = database
        self._register = register

    async def process(self, document: dict[str, Any]) -> Outcome:
        submission = validate(document)
        if isinstance(submission, Outcome):
            return submission
        decided = triage(submission)
        if decided is not None:
            return decided
        present = await asyncio.to_thread(self._database.similar, submission)
        if present is not None and not (present.is_of(submission) and present.price is None):
            return _outcome(present, submission)
        price = await self._price(submission)
        return _outcome(await asyncio.to_thread(self._database.store, submission, price), submission)

    async def find(self, document: dict[str, Any]) -> Outcome | None:
        """What is known of a submission whose processing was cut off; None if it did not come to its end."""
        submission = validate(document)
        if isinstance(submission, Outcome):
            return submission
        present = await asyncio.to_thread(self._database.similar, submission)
        return None if present is None or present.price is None else _outcome(present, submission)

    async def _price(self, submission: Submission) -> int | None:
        """None if the register cannot be asked: better a submission without a price than none."""
        try:
            company = await self._register.company(name=normalised(submission.insured), country=submission.country)
        except RegisterUnavailable:
            return None
        risk = int(company["risk"])
        return submission.sum_insured * RATE_PER_MILLION[submission.line] * risk // 1_000_000


def _outcome(stored: Stored, submission: Submission) -> Outcome:
    if not stored.is_of(submission):
        return Outcome(status="duplicate", submission_id=stored.id, reason=f"similar to {stored.insured}")
    if stored.price is None:
        return Outcome(status="pending", submission_id=stored.id, reason="the register could not be asked")
    return Outcome(status="priced", submission_id=stored.id, price=stored.price)
