"""The target that is shipped for tests keeps its own promises."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from mainspring.delivery.call import Call
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.testing.target import Answer, TargetServer, answer_by_path


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    async with Sender(guard=Guard(allow_loopback=True)) as opened:
        yield opened


async def test_scripted_answers_come_in_turn_and_the_last_one_stays(sender: Sender, target: TargetServer) -> None:
    target.script("/hook", Answer(status=503), Answer(status=429), Answer())
    statuses = [(await sender.send(Call("POST", target.url + "/hook", (), b"", 5000))).status for _ in range(5)]
    assert statuses == [503, 429, 200, 200, 200]


async def test_requests_are_recorded_with_their_arrival(sender: Sender, target: TargetServer) -> None:
    for number in range(3):
        headers = (("webhook-id", f"m{number % 2}"),)
        await sender.send(Call("POST", f"{target.url}/{number}", headers, str(number).encode(), 5000))
    await target.wait_for(3)
    assert [(request.path, request.body) for request in target.requests] == [("/0", b"0"), ("/1", b"1"), ("/2", b"2")]
    assert target.deliveries == {"m0": 2, "m1": 1}
    moments = [request.arrived_at for request in target.requests]
    assert moments == sorted(moments)
    with pytest.raises(TimeoutError):
        await target.wait_for(4, seconds=0.01)


async def test_requests_are_counted_by_their_id(sender: Sender, target: TargetServer) -> None:
    for path, headers in (
        ("/status/503?id=a", (("idempotency-key", "never"),)),
        ("/a?x=1&id=a", ()),
        ("/b", (("Req-Id", "b"), ("webhook-id", "m"))),
        ("/c", (("webhook-id", "c"),)),
        ("/d", ()),
    ):
        await sender.send(Call("POST", target.url + path, headers, b"", 5000))
    reply = await sender.send(Call("GET", target.url + "/counts", (), b"", 5000))
    assert json.loads(reply.body) == target.counts == {"a": 2, "b": 1, "c": 1}
    assert len(target.requests) == 5


async def test_an_echo_answers_with_the_request(sender: Sender, target: TargetServer) -> None:
    headers = (("X-Team", "blue"),)
    reply = await sender.send(Call("PUT", target.url + "/echo/x?a=1&a=2&b=", headers, "ü\xff".encode("latin-1"), 5000))
    told = json.loads(reply.body)
    assert (told["method"], told["path"], told["query"]) == ("PUT", "/echo/x", {"a": ["1", "2"], "b": [""]})
    assert (told["headers"]["x-team"], told["body"]) == ("blue", "\\xfc\\xff")


def test_a_path_without_script_chooses_its_answer() -> None:
    assert answer_by_path("/status/418").status == 418
    assert answer_by_path("/delay/0.5?x=1").delay_seconds == 0.5
    assert answer_by_path("/huge/10").size == 10
    assert answer_by_path("/drip/0.2").drip_seconds == 0.2
    assert answer_by_path("/gzip-bomb").behaviour == "gzip-bomb"
    assert answer_by_path("/status/none") == answer_by_path("/anything") == Answer()


async def test_it_runs_from_a_shell(sender: Sender) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mainspring.testing.target", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            url = (await process.stdout.readline()).decode().strip()
        assert (await sender.send(Call("GET", url + "/status/503", (), b"", 5000))).status == 503
    finally:
        process.terminate()
        await process.communicate()


def test_a_port_that_is_taken_or_none_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = taken.getsockname()[1]
        for port, words in (
            (used, f"Port {used} on 127.0.0.1 is already in use"),
            (99_999, "Expected a port from 0 to 65535, got 99999"),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "mainspring.testing.target", "--port", str(port)],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert done.returncode == 2
            assert f"error: {words}\n" in done.stderr
            assert "Traceback" not in done.stderr
