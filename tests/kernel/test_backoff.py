"""Waits between attempts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.kernel.backoff import max_attempts, wait_ms
from mainspring.model import RetryPolicy


def waits(policy: RetryPolicy, spread: float = 0.0) -> list[int | None]:
    return [wait_ms(policy, attempts=n, elapsed_ms=0, spread=spread) for n in range(1, 12)]


def test_the_published_default_policy_doubles_up_to_ten_minutes() -> None:
    assert waits(RetryPolicy()) == [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, None, None, None, None]


def test_an_explicit_schedule_names_every_wait_and_so_the_number_of_attempts() -> None:
    policy = RetryPolicy(schedule=(5, 60, 3600), jitter=0)
    assert waits(policy)[:4] == [5000, 60_000, 3_600_000, None]
    assert max_attempts(policy) == 4


def test_jitter_only_adds() -> None:
    assert waits(RetryPolicy(jitter=0.5), spread=0.999)[0] == 1500 - 1 + 1


def test_elapsed_time_ends_the_attempts() -> None:
    policy = RetryPolicy(max_elapsed_seconds=10)
    assert wait_ms(policy, attempts=1, elapsed_ms=8000, spread=0) == 1000
    assert wait_ms(policy, attempts=1, elapsed_ms=9500, spread=0) is None


@given(
    policy=st.builds(
        RetryPolicy,
        max_attempts=st.integers(1, 1000),
        initial_interval_seconds=st.floats(0, 31_536_000),
        backoff_multiplier=st.floats(1, 100),
        max_interval_seconds=st.floats(0, 31_536_000),
        jitter=st.floats(0, 1),
    ),
    attempts=st.integers(1, 1000),
    spread=st.floats(0, 1, exclude_max=True),
    at_least_ms=st.integers(0, 10**12),
)
def test_a_wait_is_never_longer_than_the_longest_interval_with_its_jitter(
    policy: RetryPolicy, attempts: int, spread: float, at_least_ms: int
) -> None:
    wait = wait_ms(policy, attempts=attempts, elapsed_ms=0, spread=spread, at_least_ms=at_least_ms)
    assert (wait is None) == (attempts >= policy.max_attempts)
    assert wait is None or 0 <= wait <= policy.max_interval_seconds * 2000 + 1
