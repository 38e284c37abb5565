"""`mainspring dev receive`: prints what arrives and answers as told; the whole way from a timer to the receiver."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import pytest

from mainspring.cli.receiver import DevReceiver, Script
from mainspring.delivery.signatures import new_secret, sign
from tests.cli.conftest import Run
from tests.support.running_server import COMMAND, clean_environment

SECRET = new_secret(b"k" * 32)


@contextmanager
def receiving(script: Script) -> Iterator[int]:
    with DevReceiver("127.0.0.1", 0, script) as receiver:
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield int(receiver.server_address[1])
        finally:
            receiver.shutdown()
            thread.join(5)


def post(port: int, body: bytes, **headers: str) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", "/hook", body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else {}
    finally:
        connection.close()


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE"])
def test_every_method_of_a_job_is_received(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    with receiving(Script()) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request(method, "/hook", b"{}" if method.startswith("P") else None)
            answer = connection.getresponse()
            assert (answer.status, answer.read() == b"") == (200, method == "HEAD")
        finally:
            connection.close()
    assert f"{method} /hook → 200" in capsys.readouterr().out


def test_the_first_attempts_fail_as_told() -> None:
    with receiving(Script(fail_first=2)) as port:
        assert post(port, b"{}", mainspring_attempt="1") == (500, {"ok": False})
        assert post(port, b"{}", mainspring_attempt="2") == (500, {"ok": False})
        assert post(port, b"{}", mainspring_attempt="3") == (200, {"ok": True})


@pytest.mark.parametrize("attempt", ["²", "9" * 5000, "-1", "x"])
def test_an_attempt_that_is_no_number_is_the_first(attempt: str, capfd: pytest.CaptureFixture[str]) -> None:
    with receiving(Script(fail_first=1)) as port:
        assert post(port, b"{}", mainspring_attempt=attempt) == (500, {"ok": False})
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("length", ["²", "9" * 5000, "-1", "10000001"])
def test_a_length_that_is_no_number_or_too_large_is_refused(length: str, capfd: pytest.CaptureFixture[str]) -> None:
    with receiving(Script()) as port:
        assert post(port, b"", content_length=length)[0] == 413
    assert "Traceback" not in capfd.readouterr().err


def test_a_peer_that_breaks_off_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with receiving(Script()) as port:
        peer = socket.create_connection(("127.0.0.1", port))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes with a reset
        peer.sendall(b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n")
        time.sleep(0.1)
        peer.close()
        time.sleep(0.1)
        assert post(port, b"{}")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_it_asks_to_be_called_again() -> None:
    with receiving(Script(next_in_seconds=3600)) as port:
        _, answer = post(port, b"{}")
    wait = datetime.fromisoformat(str(answer["nextExecuteAt"])) - datetime.now(UTC)
    assert 3500 < wait.total_seconds() <= 3600


def test_it_answers_with_the_given_status_and_body() -> None:
    with receiving(Script(status=418, body=b'{"tea":1}')) as port:
        assert post(port, b"{}") == (418, {"tea": 1})


def test_it_prints_the_payload_and_judges_the_signature(capsys: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"timerId": "t", "payload": {"evil": "\x1b[2J"}}).encode()
    now = int(time.time())
    signature = sign([SECRET], message_id="m", timestamp=now, body=body)
    with receiving(Script(secrets=(SECRET,))) as port:
        post(port, body, webhook_id="m", webhook_timestamp=str(now), webhook_signature=signature)
        post(port, body, webhook_id="m", webhook_timestamp=str(now), webhook_signature="v1,AAAA")
        post(port, b"\xff not json")
    printed = capsys.readouterr().out
    assert printed.count("signature: valid") == 1
    assert printed.count("signature: INVALID") == 2
    assert '"timerId": "t"' in printed
    assert "\x1b" not in printed


def test_a_timer_reaches_a_receiver_that_checks_its_signature(run: Run) -> None:
    secret = json.loads(run("namespace", "get", "default", "-o", "json").stdout)["secret"]
    arguments = [*COMMAND, "dev", "receive", "--port", "0", "--secret", secret]
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        # The background jobs of a shell ignore the signal.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads yet
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        watchdog = threading.Timer(20, process.kill)
        watchdog.start()
        try:
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found is not None
            create = ("timer", "create", "end-to-end", "--in", "0", "--callback-url", found[0], "--payload", '{"n":42}')
            assert run(*create).exit_code == 0
            printed = ""
            while '"n": 42' not in printed:
                line = process.stdout.readline()
                assert line, "the receiver ended without having received anything"
                printed += line
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
        finally:
            watchdog.cancel()
            process.kill()
    assert "signature: valid" in printed
    assert "mainspring-attempt: 1" in printed
