"""An origin of fetches, with the standard library only: what a service in any language does.

    python examples/payments.py PORT SECRET MAINSPRING_URL TOKEN [database file]

    POST /pay      {"order": 7, "url": "https://bank.example/charge"}: asks Mainspring for the call, and goes on
    POST /results  Mainspring brings what came of it, until this service has acknowledged it
    GET  /orders   how the orders stand

1. Store the intent first, under a reqId of your own. Asking again with the same reqId never makes a second call, so
   after a crash or a lost answer, or while Mainspring is not there: ask again. It may start later than this service.
2. Check the signature of a result over the bytes that arrived.
3. Take the result and note it in one transaction, then acknowledge. A repeat finds it noted.
4. Decide by state. `unknown` is the one for which nobody may simply try again.

The secret is that of the namespace `default`: `mainspring namespace get default --output json`.
"""

import base64
import hashlib
import hmac
import json
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread
from typing import Any

SCHEMA = "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, url TEXT, state TEXT, words TEXT)"
LONGEST_BODY = 2_000_000
TOLERANCE_SECONDS = 300
PAUSE_SECONDS = 1.0


def is_genuine(secret: str, headers: Any, body: bytes) -> bool:
    """Standard Webhooks: HMAC-SHA256 over id, timestamp and body, and not older than five minutes."""
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(each, expected) for each in given)


def judge(result: dict[str, Any]) -> tuple[str, str]:
    """What a result means for an order: its new state, and words for people."""
    if result["state"] == "succeeded":
        status = result["response"]["status"]
        return ("paid" if 200 <= status < 300 else "declined"), f"the bank answered {status}"
    words = result["error"]["message"]
    if result["error"]["definite"]:
        return "not paid", words  # nothing has happened: a new fetch, with another reqId, may be asked for
    return "check with the bank", words  # it may have been paid: trying again could charge twice


class Payments(ThreadingHTTPServer):
    def __init__(self, port: int, secret: str, mainspring: str, token: str, path: str) -> None:
        self.secret, self.mainspring, self.token, self.path = secret, mainspring, token, path
        self.to_ask: SimpleQueue[tuple[int, str]] = SimpleQueue()
        self.write(SCHEMA)
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def write(self, statement: str, *values: object) -> int:
        """One transaction; how many rows it changed."""
        with closing(sqlite3.connect(self.path, timeout=10)) as connection, connection:
            return connection.execute(statement, values).rowcount

    def read(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, timeout=10)) as connection:
            return connection.execute(query).fetchall()

    def pay(self, order: int, url: str) -> None:
        self.write("INSERT OR IGNORE INTO orders VALUES (?, ?, 'asked', '')", order, url)
        self.to_ask.put((order, url))

    def ask_for_all(self) -> None:
        """First for orders that were asked for, or were about to be, when this service ended; then for new ones."""
        for order in self.read("SELECT number, url FROM orders WHERE state = 'asked'"):
            self.to_ask.put(order)
        while True:
            order, url = self.to_ask.get()
            while (problem := self.ask(order, url)) is not None:
                print(f"Mainspring has not accepted payment-{order} yet: {problem}", flush=True)
                time.sleep(PAUSE_SECONDS)

    def ask(self, order: int, url: str) -> object:
        """Why it was not accepted, if asking again may help. Otherwise there will be a result, or it is refused."""
        asked = {
            "reqId": f"payment-{order}",
            "request": {"url": url, "method": "POST", "body": json.dumps({"order": order})},
            "timeoutSeconds": 5,
            "resultUrl": f"{self.address}/results",
            "context": {"order": order},
        }
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        create = f"{self.mainspring}/v1/fetches/create"
        request = urllib.request.Request(create, json.dumps(asked).encode(), headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=10):  # noqa: S310
                return None  # accepted: from here on there will be a result
        except urllib.error.HTTPError as error:
            if error.code == 429 or error.code >= 500:
                return error
            self.write("UPDATE orders SET state = 'not paid', words = ? WHERE number = ?", str(error), order)
            return None
        except OSError as error:  # it is not there, or the answer was lost
            return error

    def take(self, result: dict[str, Any]) -> bool:
        """The effect of a result. False if it had been taken before."""
        state, words = judge(result)
        take = "UPDATE orders SET state = ?, words = ? WHERE number = ? AND state = 'asked'"
        return self.write(take, state, words, result["context"]["order"]) == 1

    def orders(self) -> dict[str, str]:
        return {str(number): state for number, state in self.read("SELECT number, state FROM orders")}


class Handler(BaseHTTPRequestHandler):
    server: Payments
    timeout = 30

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        if not 0 <= length <= LONGEST_BODY:
            self.answer(413, {})
            return
        body = self.rfile.read(length)
        if self.path == "/pay":
            asked = json.loads(body)
            self.server.pay(asked["order"], asked["url"])
            self.answer(202, {})
        elif not is_genuine(self.server.secret, self.headers, body):
            self.answer(401, {})
        else:
            fresh = self.server.take(json.loads(body))
            print(f"{'taken' if fresh else 'had been taken'}: {self.headers['webhook-id']}", flush=True)
            self.answer(200, {})

    def do_GET(self) -> None:
        self.answer(200, self.server.orders())

    def answer(self, status: int, document: dict[str, str]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(port: int, secret: str, mainspring: str, token: str, path: str = "payments.db") -> None:
    with Payments(port, secret, mainspring, token, path) as payments:
        Thread(target=payments.ask_for_all, daemon=True).start()
        print(f"receiving at {payments.address}", flush=True)
        payments.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6) or not sys.argv[1].isdecimal():
        sys.exit("Usage: payments.py PORT SECRET MAINSPRING_URL TOKEN [DATABASE]")
    main(int(sys.argv[1]), *sys.argv[2:])
