"""Without a file descriptor no call is made, and none is counted."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.descriptors import is_want_of_one
from mainspring.testing.target import TargetServer
from tests.support.descriptors import no_descriptors


def post(url: str) -> Call:
    return Call("POST", url, (), b"{}", 10_000, fresh=True)


async def test_a_call_without_a_descriptor_was_not_made_and_is_told_apart(target: TargetServer) -> None:
    async with Sender(guard=Guard(allow_loopback=True), connect_seconds=0.3) as sender:
        with no_descriptors():
            reply = await sender.send(post(target.url))
        assert (reply.status, reply.problem, reply.sent) == (None, "exhausted", False)
        assert reply.detail == "Expected a file descriptor for the call, got none"
        assert (await sender.send(post(target.url))).status == 200
    assert len(target.requests) == 1


async def test_a_call_waits_for_a_descriptor_until_its_deadline(target: TargetServer) -> None:
    async with Sender(guard=Guard(allow_loopback=True), connect_seconds=5) as sender:
        with no_descriptors():
            sending = asyncio.create_task(sender.send(post(target.url)))
            await asyncio.sleep(0.2)
            assert not sending.done()
        assert (await sending).status == 200


async def test_idle_connections_give_their_descriptors_to_a_call(target: TargetServer) -> None:
    async with Sender(guard=Guard(allow_loopback=True), connect_seconds=2) as sender, TargetServer() as other:
        kept = Call("POST", other.url, (), b"{}", 10_000)
        replies = await asyncio.gather(*(sender.send(kept) for _ in range(4)))  # whose connections are idle now
        assert [reply.status for reply in replies] == [200] * 4
        with no_descriptors():
            assert (await sender.send(post(target.url))).status == 200


async def test_a_secure_call_without_a_descriptor_spoils_no_later_one(target: TargetServer) -> None:
    async with Sender(guard=Guard(allow_loopback=True), connect_seconds=0.2) as sender:
        with no_descriptors():
            reply = await sender.send(post(target.url.replace("http:", "https:")))
        assert reply.problem == "exhausted"
        later: Reply = await sender.send(post(target.url.replace("http:", "https:")))
        assert later.problem != "exhausted"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, ""), True),
        (OSError(errno.ENFILE, ""), True),
        (OSError(errno.ECONNREFUSED, ""), False),
        (socket.gaierror(socket.EAI_AGAIN, ""), False),
        (socket.gaierror(socket.EAI_NONAME, ""), False),
    ],
)
def test_want_of_a_descriptor_is_known_by_its_number(error: OSError, expected: bool) -> None:
    assert is_want_of_one(error) is expected


def test_a_vague_error_of_the_resolver_is_want_of_a_descriptor_when_there_is_none() -> None:
    with no_descriptors():
        wanted = is_want_of_one(socket.gaierror(socket.EAI_AGAIN, ""))
        named = is_want_of_one(socket.gaierror(socket.EAI_NONAME, ""))
    assert (wanted, named) == (True, False)
    assert os.path.exists(os.devnull)
