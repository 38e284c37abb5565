"""The retry policy as options, the same for timers, namespaces and jobs.

A run of a job that has no attempt left is over: jobs have no say in what becomes of it then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
import msgspec

from mainspring.cli.parameters import DURATION, DURATIONS
from mainspring.errors import FieldError, InvalidInput
from mainspring.model import RetryPolicy
from mainspring.text import counted
from mainspring.wire.strict_json import decode

_SHOWN = 10
"""Of many waits, this many are shown."""

F = TypeVar("F", bound=Callable[..., Any])

Option = tuple[str, click.ParamType[Any] | type | None, bool, str]
OPTIONS: dict[str, Option] = {
    "max_attempts": ("--retry-max-attempts", int, False, "Attempts in total, including the first."),
    "initial_interval_seconds": ("--retry-initial-interval", DURATION, False, "Wait before the first retry."),
    "backoff_multiplier": (
        "--retry-backoff-multiplier",
        float,
        False,
        "Each wait is this many times the previous one.",
    ),
    "max_interval_seconds": ("--retry-max-interval", DURATION, False, "Longest wait."),
    "max_elapsed_seconds": ("--retry-max-elapsed", DURATION, False, "Give up this long after the first attempt."),
    "jitter": ("--retry-jitter", float, False, "Random extra wait, as a fraction of the wait, 0 to 1."),
    "schedule": ("--retry-schedule", DURATIONS, False, "Explicit waits, such as 10s,1m,1h."),
    "retry_on": ("--retry-on", str, True, "What is retried: 503, 5xx, network, timeout. Repeatable."),
    "on_exhausted": (
        "--retry-on-exhausted",
        click.Choice(["park", "drop"]),
        False,
        "What becomes of the timer when attempts run out.",
    ),
}


def retry_options(command: F) -> F:
    return _with(command, OPTIONS)


def job_retry_options(command: F) -> F:
    return _with(command, {name: option for name, option in OPTIONS.items() if name != "on_exhausted"})


def _with(command: F, options: dict[str, Option]) -> F:
    for name, (flag, kind, multiple, text) in reversed(options.items()):
        command = click.option(flag, f"retry_{name}", type=kind, multiple=multiple, help=text)(command)
    return command


def policy_text(policy: RetryPolicy, *, whose: str = "", then: str = "") -> str:
    """A policy in words; `whose` it is, if it is not that of what is shown, and what comes `then`, if not what it
    says itself."""
    waits = policy.schedule
    if waits is not None:
        how = f"waits {', '.join(f'{wait:g}s' for wait in waits[:_SHOWN])}{', …' * (len(waits) > _SHOWN)}"
        attempts = min(policy.max_attempts, len(waits) + 1)
    else:
        attempts, most = policy.max_attempts, policy.max_interval_seconds
        how = f"waits {policy.initial_interval_seconds:g}s, then times {policy.backoff_multiplier:g}, at most {most:g}s"
    parts = [
        counted(attempts, "attempt"),
        *([f"{how}, up to {policy.jitter:.0%} more"] if attempts > 1 else []),
        *([f"gives up after {policy.max_elapsed_seconds:g}s"] if policy.max_elapsed_seconds is not None else []),
        *([f"on {', '.join(policy.retry_on)}"] if policy.retry_on is not None else []),
        f"then {then or policy.on_exhausted}",
    ]
    return "; ".join(parts) + (f" ({whose})" if whose else "")


def take_policy(options: dict[str, Any]) -> RetryPolicy | None:
    """Takes the retry options out of a command's options; None when none was given."""
    given: Mapping[str, object] = {name: options.pop(f"retry_{name}", None) for name in OPTIONS}
    chosen = {name: value for name, value in given.items() if value is not None and value != ()}
    if not chosen:
        return None
    wire = dict(zip(RetryPolicy.__struct_fields__, RetryPolicy.__struct_encode_fields__, strict=True))
    try:
        return decode(msgspec.json.encode({wire[name]: value for name, value in chosen.items()}), RetryPolicy)
    except InvalidInput as error:
        errors = tuple(FieldError(f"/retryPolicy{wrong.pointer}", wrong.detail) for wrong in error.errors)
        raise InvalidInput("The retry policy is not valid.", errors=errors) from error
