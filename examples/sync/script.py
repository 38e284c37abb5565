"""A script without an event loop: a reminder that survives it.

    python examples/sync/script.py [database file]

Stop it before the reminder is due and start it again: the timer is still there, and the function gets it.
"""

import sys
from threading import Event

from mainspring import DueTimer, SyncMainspring


def main(path: str) -> None:
    ms = SyncMainspring(f"sqlite:///{path}")
    reminded = Event()

    @ms.handler("remind")
    def remind(timer: DueTimer) -> None:
        print(f"{timer.payload['to']}: {timer.payload['text']}", flush=True)
        reminded.set()

    with ms:
        ms.timers.create("remind-ann", delay_seconds=1, handler="remind", payload={"to": "Ann", "text": "the kettle"})
        reminded.wait(30)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "app.db")
