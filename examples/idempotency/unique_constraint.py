"""The second wrong way: a unique constraint on what makes an order the same order.

    python examples/idempotency/unique_constraint.py

It stops the second row. It does not know whether the first one's work was done, has no answer for the second caller,
and takes the customer who really wants two for a duplicate.
"""

import sqlite3

charges: list[str] = []
answers: list[str] = []


def handle(connection: sqlite3.Connection, customer: str, sku: str, *, power_fails: bool = False) -> None:
    try:
        with connection:
            connection.execute("INSERT INTO orders VALUES (?, ?)", (customer, sku))
    except sqlite3.IntegrityError:
        answers.append(f"{customer}: duplicate")
        return
    if power_fails:  # after the row, before the work
        answers.append(f"{customer}: no answer")
        return
    charges.append(customer)
    answers.append(f"{customer}: charged")


def main() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE orders (customer TEXT, sku TEXT, UNIQUE (customer, sku))")
    handle(connection, "ann", "phone", power_fails=True)
    handle(connection, "ann", "phone")  # delivered again, as it should be
    handle(connection, "bob", "phone")
    handle(connection, "bob", "phone")  # a second phone, for his daughter
    print("\n".join(answers))
    print(
        f"ann has an order and was charged {charges.count('ann')} times; bob wanted two and got {charges.count('bob')}"
    )
    connection.close()


if __name__ == "__main__":
    main()
