"""Flask with Mainspring inside: an order is answered at once, and its reminder comes later.

    python examples/sync/flask_app.py [port] [database file]
    curl -X POST http://127.0.0.1:8730/orders/1
    curl http://127.0.0.1:8730/orders/1

Under a server that forks workers, each worker starts its own: see the guide.
"""

import sys

from flask import Flask, Response, jsonify

from mainspring import DueTimer, SyncMainspring
from mainspring.errors import NotFound


def create_app(store: str) -> Flask:
    app = Flask(__name__)
    ms = SyncMainspring(store)

    @ms.handler("remind")
    def remind(timer: DueTimer) -> None:
        print(f"order {timer.payload['order']} is still open", flush=True)

    ms.start()  # and ends with the process

    @app.post("/orders/<order>")
    def order(order: str) -> Response:
        timer = ms.timers.create(f"order-{order}", delay_seconds=1, handler="remind", payload={"order": order})
        return jsonify(dict(timer))  # as the API would answer

    @app.get("/orders/<order>")
    def reminder(order: str) -> Response:
        try:
            return jsonify({"dueAt": ms.timers.get(f"order-{order}").execute_at.isoformat()})
        except NotFound:
            attempts = ms.timers.history(f"order-{order}").attempts
            return jsonify({"reminded": [attempt.started_at.isoformat() for attempt in attempts]})

    return app


if __name__ == "__main__":
    port, path = (*sys.argv[1:], *("8730", "app.db")[len(sys.argv) - 1 :])
    create_app(f"sqlite:///{path}").run(port=int(port))
