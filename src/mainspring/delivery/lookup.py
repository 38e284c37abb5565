"""Asks the system for the addresses of names, so that names whose servers are silent do not hold up the others.

The system's lookup blocks its thread, for half a minute when nobody answers, and cannot be cancelled. The event loop
has few threads, first come, first served, so lookups have threads of their own. Whether a name may take one depends on
how its last lookup went: a name that was slow lately may only while few are taken, a new name while some are left, and
one that was answered quickly may take any. So dead names end up among themselves, however often they are called.

- A name is asked for once at a time. Callers that come meanwhile share the answer; nothing is kept after that.
- A caller that finds no thread waits for one, unless all threads are stuck: that is an error at once.
- The threads are daemons: the process ends without them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

FOR_SLOW_NAMES: Final = 16
FOR_NEW_NAMES: Final = 48
THREADS: Final = 64
SLOW_SECONDS: Final = 1.0
"""A lookup that takes longer is slow, and its thread counts as stuck."""
WAIT_SECONDS: Final = 5.0
"""How long to wait for a thread, while some are not stuck. Callers give up sooner: at their own deadline."""
SLOW_FOR_SECONDS: Final = 60.0
"""How long a name whose lookup was slow counts as slow."""
_KNOWN_LIMIT: Final = 4096
_RECHECK_SECONDS: Final = 0.2
_IDLE_SECONDS: Final = 5.0

_Answer = asyncio.Future[list[str]]
_Job = tuple[str, _Answer]


class Lookups:
    """For one event loop at a time."""

    def __init__(self) -> None:
        self._asked: dict[str, _Answer] = {}
        self._running: dict[_Answer, float] = {}
        """When each lookup that has a thread began, in that order."""
        self._waiting: dict[int, dict[_Answer, str]] = {THREADS: {}, FOR_NEW_NAMES: {}, FOR_SLOW_NAMES: {}}
        """By how many threads may already be taken when they get one; the highest number goes first."""
        self._known: dict[str, tuple[bool, float]] = {}
        """Whether the last lookup was slow, and when it ended."""
        self._idle: list[SimpleQueue[_Job]] = []

    async def find(self, name: str) -> list[str]:
        """The addresses, in the resolver's order. Raises OSError or UnicodeError when there are none."""
        loop = asyncio.get_running_loop()
        answer = self._asked.get(name)
        if answer is None or answer.get_loop() is not loop:
            answer = self._asked[name] = loop.create_future()
            self._begin(name, answer)
        return await asyncio.shield(answer)

    def _begin(self, name: str, answer: _Answer) -> None:
        limit = self._limit(name)
        if len(self._running) < limit:
            self._start(name, answer)
        else:
            self._waiting[limit][answer] = name
            self._wait(limit, answer, time.monotonic() + WAIT_SECONDS)

    def _limit(self, name: str) -> int:
        """How many threads may be taken before this name no longer gets one."""
        if name not in self._known:
            return FOR_NEW_NAMES
        slow, ended = self._known[name]
        if not slow:
            return THREADS
        return FOR_SLOW_NAMES if time.monotonic() < ended + SLOW_FOR_SECONDS else FOR_NEW_NAMES

    def _wait(self, limit: int, answer: _Answer, until: float) -> None:
        """Check now and then whether waiting still makes sense."""
        if answer not in self._waiting[limit]:
            return
        now = time.monotonic()
        begun = list(self._running.values())
        if now < until and not (len(begun) >= limit and begun[limit - 1] < now - SLOW_SECONDS):
            answer.get_loop().call_later(_RECHECK_SECONDS, self._wait, limit, answer, until)
            return
        name = self._waiting[limit].pop(answer)
        self._fail(
            name, answer, OSError(f"no lookup: {len(begun)} other names are being looked up and have no answer yet")
        )

    def _start(self, name: str, answer: _Answer) -> None:
        self._running[answer] = time.monotonic()
        with suppress(IndexError):
            self._idle.pop().put((name, answer))
            return
        jobs: SimpleQueue[_Job] = SimpleQueue()
        jobs.put((name, answer))
        try:
            Thread(target=self._work, args=(jobs,), name="mainspring-lookup", daemon=True).start()
        except RuntimeError as error:
            del self._running[answer]
            self._fail(name, answer, OSError(f"no lookup: {error}"))

    def _end(self, name: str, answer: _Answer, found: list[str] | Exception, seconds: float) -> None:
        self._known.pop(name, None)
        self._known[name] = (seconds > SLOW_SECONDS, time.monotonic())
        if len(self._known) > _KNOWN_LIMIT:
            del self._known[next(iter(self._known))]
        if isinstance(found, Exception):
            self._fail(name, answer, found)
        else:
            self._forget(name, answer)
            answer.set_result(found)
        for limit, waiting in self._waiting.items():
            while waiting and len(self._running) < limit:
                first = next(iter(waiting))
                self._start(waiting.pop(first), first)

    def _fail(self, name: str, answer: _Answer, error: Exception) -> None:
        self._forget(name, answer)
        answer.set_exception(error)
        answer.exception()  # nobody may be waiting by now, which is nothing to complain about

    def _forget(self, name: str, answer: _Answer) -> None:
        if self._asked.get(name) is answer:
            del self._asked[name]

    # --- in the threads -------------------------------------------------------------------------------

    def _work(self, jobs: SimpleQueue[_Job]) -> None:
        while True:
            try:
                name, answer = jobs.get(timeout=_IDLE_SECONDS)
            except Empty:
                try:
                    self._idle.remove(jobs)
                except ValueError:
                    continue  # a job is being put just now
                return
            begun = time.monotonic()
            found = _ask(name)
            seconds = time.monotonic() - begun
            self._idle.append(jobs)
            del self._running[answer]
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                answer.get_loop().call_soon_threadsafe(self._end, name, answer, found, seconds)


def _ask(name: str) -> list[str] | Exception:
    try:
        return [str(answer[4][0]) for answer in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except Exception as error:  # noqa: BLE001  (handed to the callers)
        return error
