"""Batches that failed in part: the failed items are reported as such, and what was done is reported for the others.

An error becomes that of the whole call only if no item got an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.store import Verdict

T = TypeVar("T")


def answered(results: Sequence[T | BaseException]) -> list[T | None]:
    """The results, with None for each that failed. Raises the first error if all have failed."""
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures:
        if not isinstance(failure, Exception):  # a cancellation is not a result
            raise failure
    if failures and len(failures) == len(results):
        # A new one for each caller: an error that several of them raise would gather their tracebacks.
        raise StoreUnavailable(str(failures[0])) from failures[0]
    return [None if isinstance(result, BaseException) else result for result in results]


def verdicts(results: Sequence[Verdict | BaseException]) -> list[Verdict]:
    """The verdicts, UNAVAILABLE for each item that failed. Raises the first error if all have failed."""
    return [Verdict.UNAVAILABLE if result is None else result for result in answered(results)]
