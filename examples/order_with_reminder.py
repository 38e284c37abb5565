"""An order and its reminder in one transaction: both are there, or neither.

    python examples/order_with_reminder.py [database file]

The program's table and Mainspring's are in one SQLite file. The first order goes through; the second one fails after
its reminder was written, so its reminder never fires. Stop the program before the reminder is due and start it
again: the order is still there, and so is its reminder.
"""

import asyncio
import sys
from contextlib import suppress

import apsw

from mainspring import DueTimer, Mainspring
from mainspring.errors import Conflict


async def place_order(ms: Mainspring, connection: apsw.Connection, order_id: str, *, card_works: bool) -> None:
    with connection:  # a transaction: committed at the end of the block, rolled back if it raises
        connection.execute("INSERT OR REPLACE INTO orders VALUES (?, 'placed')", (order_id,))
        await ms.timers.create(
            f"remind-{order_id}",
            namespace="shop",
            delay_seconds=1,
            handler="remind",
            payload=order_id,
            connection=connection,
        )
        if not card_works:
            raise ValueError("the card was declined")


async def main(path: str) -> None:
    reminded = asyncio.Event()

    async with Mainspring(f"sqlite:///{path}") as ms:

        @ms.handler("remind")
        async def remind(timer: DueTimer) -> None:
            print(f"reminder: {timer.payload} is waiting  ({timer.delivery_id})")
            reminded.set()

        with suppress(Conflict):  # it exists since an earlier run
            await ms.namespaces.create("shop")
        connection = apsw.Connection(path)
        connection.set_busy_timeout(2000)  # the engine writes to the file, too
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, state TEXT)")

        await place_order(ms, connection, "order-1", card_works=True)
        try:
            await place_order(ms, connection, "order-2", card_works=False)
        except ValueError as error:
            print(f"order-2: {error}, so there is no order and no reminder")

        async with asyncio.timeout(30):
            await reminded.wait()
        orders = [row[0] for row in connection.execute("SELECT id FROM orders ORDER BY id")]
        waiting = [
            timer.timer_id async for timer in ms.timers.iterate(namespace="shop") if timer.timer_id != "remind-order-1"
        ]
        print(f"orders: {orders}, other reminders: {waiting}")
        connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "app.db"))
