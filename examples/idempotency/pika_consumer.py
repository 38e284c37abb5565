"""pika: a message that is delivered twice is processed once.

    pip install pika
    python examples/idempotency/pika_consumer.py amqp://guest:guest@127.0.0.1:5672/

The ack comes after the record, so a message whose consumer dies is delivered again and gets the recorded outcome. A
message is known by its header `Idempotency-Key`, or else by its body, without the fields in which deliveries differ.
"""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pika  # type: ignore[import-not-found, import-untyped, unused-ignore]

from mainspring.errors import StoreUnavailable
from mainspring.idempotency import (
    IdempotentProcessor,
    InProgress,
    KeyReuse,
    LostClaim,
    NotRecorded,
    SQLiteStore,
    UnknownOutcome,
)

AGAIN_SECONDS = 1.0
"""A broker delivers again at once what was put back."""


class Consumer:
    """`on_message` is what `basic_consume` calls."""

    def __init__(self, processor: IdempotentProcessor[Any, Any]) -> None:
        self._processor = processor
        self.answered: list[str] = []

    def on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        tag = method.delivery_tag
        try:
            record = self._processor.process(json.loads(body), key=(properties.headers or {}).get("Idempotency-Key"))
        except (InProgress, LostClaim, StoreUnavailable):  # being done elsewhere, or not even claimed
            time.sleep(AGAIN_SECONDS)
            channel.basic_nack(tag, requeue=True)
            self.answered.append("put back")
        except (UnknownOutcome, KeyReuse):  # for a person to look at, in the dead-letter queue if there is one
            channel.basic_reject(tag, requeue=False)
            self.answered.append("rejected")
        except NotRecorded:  # done, and a repeat of it is rejected
            channel.basic_ack(tag)
            self.answered.append("done, not recorded")
        else:
            channel.basic_ack(tag)
            self.answered.append(f"{record.result}{', a replay' if record.was_replay else ''}")


def main(url: str, directory: Path) -> None:
    charges: list[object] = []

    def charge(order: dict[str, object]) -> str:
        charges.append(order["id"])
        if order["id"] == 18:
            raise UnknownOutcome("the bank did not answer")
        return f"receipt of {order['id']}"

    store = SQLiteStore(directory / "shop.db")
    consumer = Consumer(IdempotentProcessor(store, charge, scope="charge"))
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    for number, order in enumerate((17, 17, 18, 18)):
        body = json.dumps({"id": order, "cents": 1000, "retry_count": number}).encode()
        channel.basic_publish("", queue, body)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue, consumer.on_message)
    deadline = time.monotonic() + 30
    while len(consumer.answered) < 4 and time.monotonic() < deadline:
        connection.process_data_events(time_limit=0.1)
    connection.close()
    store.close()
    for answer in consumer.answered:
        print(answer)
    print(f"order 17 was charged {charges.count(17)} times, order 18 was tried {charges.count(18)} times")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(sys.argv[1], Path(temporary))
