"""The right way: claim the key before the work, record the outcome after it, replay it to everybody else.

    python examples/idempotency/charge_once.py

Ten deliveries at once make one charge, and all ten get its receipt. Then a process dies after it has charged and before
it could say so: its outcome is unknown, nothing is charged again, and the bank is asked.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from mainspring.idempotency import IdempotentProcessor, NotDone, Resolved, SQLiteStore, UnknownOutcome, Unresolved

Order = dict[str, object]


class Bank:
    """Somebody else's system: a file of charges."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def charge(self, order_id: object) -> str:
        with self.path.open("a") as file:
            file.write(f"{order_id}\n")
        return f"receipt of {order_id}"

    def charges(self, order_id: object) -> int:
        return self.path.read_text().split().count(str(order_id)) if self.path.exists() else 0


def dies_after_charging(directory: Path, order: Order) -> None:
    def charge_and_die(order: Order) -> str:
        Bank(directory / "bank").charge(order["id"])
        os._exit(1)

    IdempotentProcessor(
        SQLiteStore(str(directory / "shop.db")), charge_and_die, scope="charge", lease_seconds=0.5
    ).process(order)


def main(directory: Path) -> None:
    bank = Bank(directory / "bank")
    store = SQLiteStore(str(directory / "shop.db"))

    def charge(order: Order) -> str:
        return bank.charge(order["id"])

    processor = IdempotentProcessor(store, charge, scope="charge")
    deliveries: list[Order] = [{"id": 17, "cents": 1000, "received_at": number} for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        records = list(pool.map(processor.process, deliveries))
    print(f"order 17: {bank.charges(17)} charge, {len(records)} times {records[0].result!r}")
    print(f"  {processor.replays.executed} executed, {processor.replays.replayed} replayed")

    subprocess.run([sys.executable, __file__, str(directory)], check=False, timeout=60)  # noqa: S603
    try:
        processor.process({"id": 18})
    except UnknownOutcome as error:
        print(f"order 18: {error.detail.partition('is unknown: ')[2]}")

    def ask_the_bank(order: Order, unresolved: Unresolved) -> Resolved[str] | NotDone:
        return Resolved(f"receipt of {order['id']}") if bank.charges(order["id"]) else NotDone()

    resolving = IdempotentProcessor(store, charge, scope="charge", resolve=ask_the_bank)
    print(f"  asked the bank: {resolving.process({'id': 18}).result!r}, {bank.charges(18)} charge")
    store.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        dies_after_charging(Path(sys.argv[1]), {"id": 18})
    with TemporaryDirectory() as temporary:
        main(Path(temporary))
