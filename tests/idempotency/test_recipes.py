"""The recipes for pika and Celery do what they say, where these are installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.servers.rabbitmq import RabbitMQ
from tests.support.running_server import clean_environment
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.slow  # processes of their own
GUIDE = (ROOT / "docs" / "guides" / "idempotency.md").read_text()


def _printed(example: str, *arguments: str) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / "idempotency" / example), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=clean_environment()
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert f"examples/idempotency/{example}" in GUIDE
    return done.stdout.splitlines()


def test_a_celery_task_that_is_delivered_twice_is_done_once() -> None:
    assert _printed("celery_tasks.py") == [
        "delivery 1: receipt of 17",
        "delivery 2: receipt of 17",
        "order 17 was charged 1 times",
    ]


def test_a_message_that_pika_is_given_twice_is_processed_once(amqp: RabbitMQ) -> None:
    assert _printed("pika_consumer.py", amqp.fresh()) == [
        "receipt of 17",
        "receipt of 17, a replay",
        "rejected",
        "rejected",
        "order 17 was charged 1 times, order 18 was tried 1 times",
    ]
