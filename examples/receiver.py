"""A receiver of callbacks, with the standard library only (and Mainspring's `verify`): what a safe one must do.

    python examples/receiver.py PORT SECRET [database file]

1. Check the signature over the bytes that arrived, before looking into them.
2. Do the work and note the delivery id in one transaction, so that a repeat finds it done.
3. Answer after the commit: an answer of 2xx says that the work is done.

The secret is that of the namespace: `mainspring namespace get default --output json`.
"""

import json
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mainspring.delivery.signatures import verify
from mainspring.errors import InvalidInput

LONGEST_BODY = 1_000_000

SCHEMA = """
CREATE TABLE IF NOT EXISTS deliveries (id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS reminders (timer_id TEXT, payload TEXT);
"""


class Receiver(ThreadingHTTPServer):
    def __init__(self, port: int, secret: str, path: str) -> None:
        self.secret = secret
        self.path = path
        with self.connect() as connection:
            connection.executescript(SCHEMA)
        super().__init__(("127.0.0.1", port), Handler)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=10)

    def remind(self, delivery_id: str, body: bytes) -> bool:
        """Do the work of a delivery. False if it had been done."""
        timer = json.loads(body)
        connection = self.connect()
        try:
            with connection:  # one transaction: committed at the end, rolled back on an error
                if not connection.execute("INSERT OR IGNORE INTO deliveries VALUES (?)", (delivery_id,)).rowcount:
                    return False
                row = (timer["timerId"], json.dumps(timer["payload"]))
                connection.execute("INSERT INTO reminders VALUES (?, ?)", row)
        finally:
            connection.close()
        return True


class Handler(BaseHTTPRequestHandler):
    server: Receiver
    timeout = 30

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        if not 0 <= length <= LONGEST_BODY:
            self.answer(413, {"ok": False})
            return
        body = self.rfile.read(length)
        try:
            verify([self.server.secret], dict(self.headers.items()), body, now=int(time.time()))
        except InvalidInput as error:
            self.answer(401, {"ok": False, "error": error.detail})
            return
        fresh = self.server.remind(self.headers["webhook-id"], body)
        print(f"{'done' if fresh else 'had been done'}: {self.headers['webhook-id']}", flush=True)
        self.answer(200, {"ok": True})

    def answer(self, status: int, document: dict[str, object]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(port: int, secret: str, path: str = "receiver.db") -> None:
    with Receiver(port, secret, path) as receiver:
        print(f"receiving at http://127.0.0.1:{receiver.server_address[1]}/", flush=True)
        receiver.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or not sys.argv[1].isdecimal():
        sys.exit("Usage: receiver.py PORT SECRET [DATABASE]")
    main(int(sys.argv[1]), *sys.argv[2:])
