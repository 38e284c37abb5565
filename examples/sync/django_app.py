"""Django with Mainspring inside, in one file: an order is answered at once, and its reminder comes later.

    python examples/sync/django_app.py [port] [database file]
    curl -X POST http://127.0.0.1:8731/orders/1
    curl http://127.0.0.1:8731/orders/1

In a project, what is made here belongs into a module of the application, and `ms.start()` into the process that is to
run the timers: see the guide.
"""

import sys
from wsgiref.simple_server import make_server

from django.conf import settings  # type: ignore[import-untyped]
from django.core.wsgi import get_wsgi_application  # type: ignore[import-untyped]
from django.http import HttpRequest, JsonResponse  # type: ignore[import-untyped]
from django.urls import path  # type: ignore[import-untyped]

from mainspring import DueTimer, SyncMainspring
from mainspring.errors import NotFound

port, database = (*sys.argv[1:], *("8731", "app.db")[len(sys.argv) - 1 :])
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="of an example")  # noqa: S106
ms = SyncMainspring(f"sqlite:///{database}")


@ms.handler("remind")
def remind(timer: DueTimer) -> None:
    print(f"order {timer.payload['order']} is still open", flush=True)


def orders(request: HttpRequest, order: str) -> JsonResponse:
    timer_id = f"order-{order}"
    if request.method == "POST":
        timer = ms.timers.create(timer_id, delay_seconds=1, handler="remind", payload={"order": order})
        return JsonResponse(dict(timer))  # as the API would answer
    try:
        return JsonResponse({"dueAt": ms.timers.get(timer_id).execute_at.isoformat()})
    except NotFound:
        attempts = ms.timers.history(timer_id).attempts
        return JsonResponse({"reminded": [attempt.started_at.isoformat() for attempt in attempts]})


urlpatterns = [path("orders/<order>", orders)]

if __name__ == "__main__":
    with ms, make_server("127.0.0.1", int(port), get_wsgi_application()) as server:
        print(f"serving on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
