"""The best way, where the effect is a row: effect and outcome in one transaction. Then nothing can be unknown.

    python examples/idempotency/order_once.py

The first try fails after the order was written, so there is neither an order nor an outcome; the second one makes
both; the third one is a replay.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import apsw

from mainspring.idempotency import IdempotentProcessor, SQLiteStore


def place_order(order: dict[str, str], connection: apsw.Connection) -> str:
    connection.execute("INSERT INTO orders VALUES (?)", (order["id"],))
    return f"order {order['id']} is placed"


def main(directory: Path) -> None:
    path = str(directory / "shop.db")
    processor = IdempotentProcessor(SQLiteStore(path), place_order)
    processor.open()  # makes the tables, before a transaction of ours is open
    connection = apsw.Connection(path)
    connection.set_busy_timeout(2000)
    connection.execute("CREATE TABLE orders (id TEXT)")

    for attempt in range(3):
        try:
            with connection:  # a transaction: committed at the end of the block, rolled back if it raises
                record = processor.process({"id": "17"}, connection=connection)
                if attempt == 0:
                    raise ConnectionError("the customer has hung up")
            print(f"{record.result}{', a replay' if record.was_replay else ''}")
        except ConnectionError as error:
            print(f"rolled back: {error}")
        number = connection.execute("SELECT count(*) FROM orders").get
        print(f"  orders: {number}")
    connection.close()
    processor.close()


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(Path(temporary))
