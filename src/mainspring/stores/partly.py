"""Batches of which a part failed: what failed is told of these items, what was done of the others.

An error is the whole call's only when nothing of it was answered for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.store import Verdict

T = TypeVar("T")


def answered(results: Sequence[T | BaseException]) -> list[T | None]:
    """The results, with None for each that failed. If all have failed, the first error."""
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures:
        if not isinstance(failure, Exception):  # a cancellation is nobody's result
            raise failure
    if failures and len(failures) == len(results):
        # Anew for each caller: what several of them raise would gather their tracebacks.
        raise StoreUnavailable(str(failures[0])) from failures[0]
    return [None if isinstance(result, BaseException) else result for result in results]


def verdicts(results: Sequence[Verdict | BaseException]) -> list[Verdict]:
    """The verdicts, UNAVAILABLE for each item that failed. If all have failed, the first error."""
    return [Verdict.UNAVAILABLE if result is None else result for result in answered(results)]
