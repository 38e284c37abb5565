"""How long to wait before the next attempt: a pure function of the policy."""

from __future__ import annotations

from mainspring.model import RetryPolicy


def max_attempts(policy: RetryPolicy) -> int:
    """An explicit schedule names every wait, so it also says how many attempts there are."""
    return policy.max_attempts if policy.schedule is None else len(policy.schedule) + 1


def wait_ms(policy: RetryPolicy, *, attempts: int, elapsed_ms: int, spread: float, at_least_ms: int = 0) -> int | None:
    """Milliseconds to wait after `attempts` attempts, or None when the policy is exhausted.

    `spread` in [0, 1) is the random part; `at_least_ms` is what the receiver asked for (Retry-After), obeyed up
    to the policy's longest interval. `elapsed_ms` counts from the first attempt.
    """
    if attempts >= max_attempts(policy):
        return None
    if policy.schedule is not None:
        base = longest = policy.schedule[attempts - 1]
    else:
        longest = policy.max_interval_seconds
        # Past this exponent every interval is the longest one; the bound keeps the power finite.
        exponent = min(attempts - 1, 200)
        try:
            base = min(policy.initial_interval_seconds * policy.backoff_multiplier**exponent, longest)
        except OverflowError:
            base = longest
    wait = max(round(base * (1 + policy.jitter * spread) * 1000), min(at_least_ms, round(max(base, longest) * 1000)))
    if policy.max_elapsed_seconds is not None and elapsed_ms + wait > policy.max_elapsed_seconds * 1000:
        return None
    return wait
