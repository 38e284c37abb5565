"""`mainspring key` against a real server, whose store a program shares."""

from __future__ import annotations

import json

import pytest

from mainspring.idempotency import IdempotentProcessor, SQLiteStore, UnknownOutcome
from mainspring.idempotency.http.answers import PackedAnswer, unpack
from tests.cli.conftest import Run
from tests.support.running_server import Running


def _lost(_: object) -> object:
    raise UnknownOutcome("the bank did not answer")


def test_unknown_keys_are_listed_shown_settled_and_forgotten(run: Run, server: Running) -> None:
    store = SQLiteStore(server.store.removeprefix("sqlite:///"))
    processor = IdempotentProcessor(store, _lost, scope="shop.charge")
    for key in ("order-17", "order-18"):
        with pytest.raises(UnknownOutcome):
            processor.process(key, key)
    listed = run("key", "list", "--scope", "shop.charge")
    assert "order-17" in listed.stdout
    assert "the bank did not answer" in json.loads(run("key", "list", "-o", "json").stdout)["keys"][0]["reason"]
    assert json.loads(run("key", "get", "shop.charge", "order-17", "-o", "json").stdout)["state"] == "unknown"
    settled = run("key", "settle", "shop.charge", "order-17", "--result", '"receipt of 17"')
    assert settled.exit_code == 0, settled.stderr
    assert processor.process("order-17", "order-17").result == "receipt of 17"
    asked = run("key", "forget", "shop.charge", "order-18", stdin="n\n")
    assert (asked.exit_code, "is unknown. Let its work run again?" in asked.stderr) == (1, True)
    assert run("key", "forget", "shop.charge", "order-18", "--yes").exit_code == 0
    assert json.loads(run("key", "list", "--scope", "shop.charge", "-o", "json").stdout)["keys"] == []
    store.close()


def test_a_request_is_settled_with_an_answer(run: Run, server: Running) -> None:
    def broken(_: object) -> bytes:
        raise UnknownOutcome("the application raised")

    store = SQLiteStore(server.store.removeprefix("sqlite:///"))
    processor = IdempotentProcessor(store, broken, scope="http", result_type=PackedAnswer)
    with pytest.raises(UnknownOutcome):
        processor.process("request", "http-1")
    wrong = run("key", "settle", "http", "http-1", "--result", "1")
    assert (wrong.exit_code != 0, "Expected answer for this key, got result" in wrong.stderr) == (True, True)
    header = "Content-Type: application/json"
    settled = run("key", "settle", "http", "http-1", "--status", "201", "-H", header, "--body", '{"order": 17}')
    assert settled.exit_code == 0, settled.stderr
    answer = unpack(processor.process("request", "http-1").result)
    assert (answer.status, answer.body) == (201, b'{"order": 17}')
    assert answer.headers == [(b"Content-Type", b"application/json"), (b"content-length", b"13")]
    store.close()


def test_what_cannot_be_decided_is_told(run: Run) -> None:
    missing = run("key", "get", "shop.charge", "never")
    assert (missing.exit_code, "does not exist" in missing.stderr) == (3, True)
    assert run("key", "forget", "shop.charge", "never", "--yes").exit_code == 3
    assert (
        "Expected one of --result, --result-base64 and an answer" in run("key", "settle", "shop.charge", "never").stderr
    )
