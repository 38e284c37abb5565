"""What the log says of fetches that did not end well, and of results that their origins did not take."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.failure_lines import FailureLines
from mainspring.fetches.outcome import Outcome
from mainspring.fetches.record import Fetch
from mainspring.wire.instants import to_instant


class FetchFailures:
    def __init__(self, lines: FailureLines, host_of: Callable[[str], str]) -> None:
        """`host_of` names the host of a URL: a URL itself may hold a secret."""
        self._lines = lines
        self._host_of = host_of

    def tell_end(self, fetch: Fetch, outcome: Outcome) -> None:
        """It has ended without a response."""
        failure = outcome.failure
        self._lines.tell(
            "a fetch failed" if outcome.state == "failed" else "the outcome of a fetch is unknown",
            req_id=fetch.req_id,
            correlation_id=fetch.correlation_id,
            outcome=outcome.state,
            kind="" if failure is None else failure.kind,
            executor=fetch.executor,
            duration_ms=outcome.duration_ms,
            destination=self._named(fetch.request.url),
            reason=outcome.words,
        )

    def tell_offer(self, fetch: Fetch) -> None:
        """Its origin has not taken the result, now or for good."""
        delivery = fetch.delivery
        is_last = delivery.state == "failed"
        self._lines.tell(
            "a result did not reach its origin" if is_last else "an offer of a result failed",
            req_id=fetch.req_id,
            correlation_id=fetch.correlation_id,
            attempt=delivery.attempts,
            status=delivery.last_status,
            next="dropped" if is_last else "retry",
            next_at=None if is_last else to_instant(delivery.next_at).isoformat(),
            destination=self._named(fetch.result_url or ""),
            reason=delivery.detail,
        )

    def _named(self, url: str) -> str:
        return self._host_of(url) or "a URL that may not be called"
