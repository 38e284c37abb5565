"""An event loop without a clock and without a network: time stands still while there is work, and then jumps.

**Time** is an integer number of microseconds, so that no sum of seconds depends on its order.

**Processes.** A context variable names the process to which each callback belongs; whatever a callback starts inherits
it. That is the membrane around a process: the callbacks of a dead process are dropped, whatever they wait for, and no
`finally` runs, as after `kill -9`; those of one that stands still are held until it goes on.

**Order.** Within a process callbacks run in the order in which they were asked for, as on any event loop. Between
processes that are ready at the same instant, the order is drawn for that instant.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
STEPS_AT_ONE_INSTANT: Final = 200_000
"""More than this is not work but a loop that never ends."""


class Spinning(Exception):
    """A process works without end, and time does not go on."""

    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process


class Process:
    """What dies, or stands still, as a whole."""

    __slots__ = ("alive", "held", "name", "ready")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.held = False
        self.ready: deque[_Handle] = deque()


CURRENT: Final[contextvars.ContextVar[Process]] = contextvars.ContextVar("simulated process")


def context_of(process: Process) -> contextvars.Context:
    """A context whose callbacks belong to `process`."""
    context = contextvars.copy_context()
    context.run(CURRENT.set, process)
    return context


class _Handle:
    """What `asyncio.TimerHandle` is to its callers, and no more: most of a run's time goes through here."""

    __slots__ = ("_args", "_callback", "_context", "_is_cancelled", "_when")

    def __init__(
        self, when_us: int, callback: Callable[..., object], args: tuple[object, ...], context: contextvars.Context
    ) -> None:
        self._when = when_us
        self._callback = callback
        self._args = args
        self._context = context
        self._is_cancelled = False

    def when(self) -> float:
        return self._when / 1_000_000

    def cancel(self) -> None:
        self._is_cancelled = True

    def cancelled(self) -> bool:
        return self._is_cancelled

    def run(self) -> None:
        self._context.run(self._callback, *self._args)


class SimulatedTask(asyncio.Task[T]):
    """Hashed by its number and not by its address, so that sets of tasks have the same order in every run."""

    def __init__(self, *args: Any, number: int, **kwargs: Any) -> None:
        self._number = number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """`priority` says who goes first at an instant: the process with the smallest number."""

    def __init__(self, priority: Callable[[int, str], int] | None = None) -> None:
        super().__init__()
        self.now_us = 0
        self._priority = priority or (lambda _instant, _name: 0)
        self._outside = Process("")
        """Everything that belongs to no process belongs to this one."""
        self._runnable: dict[Process, None] = {}
        self._timers: list[tuple[int, int, _Handle, Process]] = []
        self._sequence = 0
        self._steps = 0
        self._tasks_made = 0
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now_us / 1_000_000

    # --- processes ----------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """From now on nothing in it runs, and nothing in it ends in good order."""
        process.alive = False
        process.ready.clear()
        self._runnable.pop(process, None)

    def hold(self, process: Process) -> None:
        """It stands still while time goes on without it."""
        process.held = True
        self._runnable.pop(process, None)

    def go_on(self, process: Process) -> None:
        process.held = False
        if process.ready:
            self._runnable[process] = None

    # --- what asyncio asks of a loop ------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = _Handle(self.now_us, callback, args, context)
        self._enqueue(context.get(CURRENT) or self._outside, handle)
        return cast(asyncio.Handle, handle)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        # A wait for a fraction of a microsecond is rounded up to a whole one: time must go on.
        microseconds = max(round(delay * 1_000_000), 1 if delay > 0 else 0)
        return self.call_at_us(self.now_us + microseconds, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at_us(round(when * 1_000_000), callback, *args, context=context)

    def call_at_us(
        self, when_us: int, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        handle = _Handle(when_us, callback, args, context)
        self._sequence += 1
        heapq.heappush(self._timers, (when_us, self._sequence, handle, context.get(CURRENT) or self._outside))
        return cast(asyncio.TimerHandle, handle)

    def _enqueue(self, process: Process, handle: _Handle) -> None:
        if process.alive:
            process.ready.append(handle)
            if not process.held:
                self._runnable[process] = None

    def _run_once(self) -> None:
        while not self._runnable:
            self._advance()
        process = self._next()
        ready = process.ready
        self._steps += len(ready)
        for _ in range(len(ready)):
            if not ready or process.held:
                break
            handle = ready.popleft()
            if not handle.cancelled():
                self._run(handle)
        if self._steps > STEPS_AT_ONE_INSTANT:
            raise Spinning(process.name)
        if not ready:
            self._runnable.pop(process, None)

    def _run(self, handle: _Handle) -> None:
        try:
            handle.run()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as in every event loop
            self.call_exception_handler({"message": "Exception in a callback", "exception": error})

    def _next(self) -> Process:
        if len(self._runnable) == 1:
            return next(iter(self._runnable))
        instant, priority = self.now_us, self._priority
        return min(self._runnable, key=lambda process: (priority(instant, process.name), process.name))

    def _advance(self) -> None:
        """Go to the next instant at which something happens."""
        timers = self._timers
        while timers and (timers[0][2].cancelled() or not timers[0][3].alive):
            heapq.heappop(timers)
        if not timers:
            raise RuntimeError("Expected something to wait for, got a simulation in which nothing will ever happen")
        if timers[0][0] > self.now_us:
            self.now_us = timers[0][0]
            self._steps = 0
        while timers and timers[0][0] <= self.now_us:
            _, _, handle, process = heapq.heappop(timers)
            if not handle.cancelled():
                self._enqueue(process, handle)

    def _make_task(
        self, _: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], **kwargs: Any
    ) -> SimulatedTask[T]:
        self._tasks_made += 1
        return SimulatedTask(coroutine, loop=self, number=self._tasks_made, **kwargs)

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError  # there is no network

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""


def run_simulated(main: Callable[[SimulatedLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main(loop)` in simulated time."""
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
