"""Mainspring inside a program: a reminder that survives the program.

    python examples/library.py [database file]

Stop it before the reminder is due and start it again: the timer is still there, and the handler gets it.
"""

import asyncio
import sys

from mainspring import DueTimer, Mainspring


async def main(path: str) -> None:
    reminded = asyncio.Event()

    async with Mainspring(f"sqlite:///{path}") as ms:

        @ms.handler("remind")
        async def remind(timer: DueTimer) -> None:
            # A repeat has the same delivery id. Raise to have it tried again, by the retry policy.
            print(f"{timer.payload['to']}: {timer.payload['text']}  ({timer.delivery_id}, attempt {timer.attempt})")
            reminded.set()

        timer = await ms.timers.create(
            "remind-ann",
            namespace="app",
            delay_seconds=1,
            handler="remind",
            payload={"to": "Ann", "text": "the kettle"},
        )
        print(f"stored {timer.timer_id}, due at {timer.execute_at:%H:%M:%S} UTC")
        async with asyncio.timeout(30):
            await reminded.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "app.db"))
