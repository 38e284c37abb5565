"""The first wrong way: look whether it was done, do it, write down that it was.

    python examples/idempotency/check_then_act.py

Between the look and the note there is time, and in that time the second delivery looks, too. The barrier only makes
happen each time what a load balancer makes happen on a bad day.
"""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

both_have_looked = threading.Barrier(2)
charges: list[str] = []


def handle(path: Path, order_id: str) -> None:
    connection = sqlite3.connect(path, timeout=10)
    try:
        if connection.execute("SELECT 1 FROM processed WHERE order_id = ?", (order_id,)).fetchone():
            return
        both_have_looked.wait(timeout=10)
        charges.append(order_id)  # the customer's money
        with connection:
            connection.execute("INSERT OR IGNORE INTO processed VALUES (?)", (order_id,))
    finally:
        connection.close()


def main() -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "shop.db"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE processed (order_id TEXT PRIMARY KEY)")
        connection.close()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: handle(path, "order-17"), range(2)))
    print(f"order-17 was charged {len(charges)} times")


if __name__ == "__main__":
    main()
