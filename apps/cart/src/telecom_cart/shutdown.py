"""When a process ends: it is told to by a signal, or whoever has started it is gone.

A parent that is killed can tell its children nothing. But it holds the other end of their standard input, and that
closes with it, on every system.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress


def on_end(end: Callable[[], None], *, with_stdin: bool = False) -> None:
    """Have `end` called in the running loop, at SIGINT, at SIGTERM, and `with_stdin` when standard input ends."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)

    def wait() -> None:
        # Not by `sys.stdin`, whose lock would be held when the interpreter ends.
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        with suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(end)

    if with_stdin:
        threading.Thread(target=wait, daemon=True, name="standard input").start()
