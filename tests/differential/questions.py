"""Draws requests. What was answered before is used again: ids, generations and cursors."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.differential.strings import STRINGS

FAR_MS: Final = 253_402_300_799_999
"""The last instant of the year 9999."""
IDS: Final = 24
"""So many timer ids are in use beside the odd ones: few, so that they meet."""
NAMESPACES: Final = ("default", "shop", "Shop", "a.b-c_d", "x" * 255)
JOBS: Final = ("daily", "Daily", "a-b", "a.b", "a_b", "a0", "b", "z" * 128)
FETCHES: Final = (*(f"req-{number}" for number in range(12)), "A:b.c_d", "a:b.c_d", "r" * 128)
SCHEDULES: Final = ("* * * * *", "*/5 * * * *", "30 2 * * *", "@daily", "@hourly", "0 0 29 2 *", "H * * * *")
ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
BAD_JSON: Final = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"timerId":"a","timerId":"b"}',
    b'{"timerId":"\xff"}',
    b'{"timerId":"\\ud800"}',
    b'{"timerId":"a\\u0000b"}',
    b"[" * 40 + b"]" * 40,
    b'{"timerId":' + b"9" * 30 + b"}",
)


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    body: bytes
    key: str = ""
    """The header `Idempotency-Key`; empty: none."""

    @property
    def only_reads(self) -> bool:
        return self.path.endswith(("/get", "/list", "/history", "/runs", "/preview", "/stats"))

    def __str__(self) -> str:
        return f"{self.path} {self.body.decode('utf-8', 'backslashreplace')}" + (f" key={self.key}" * bool(self.key))


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where calls go: the same for all who are compared."""

    good: str
    gone: str
    """Answers 410, by which a URL is parked: each is used by one timer, as the first of two would decide for both."""
    dead: str
    """Nobody listens."""


Fields = dict[str, Any]


class Asking:
    """`draw` gives the next request; `learn` takes what was answered to it."""

    def __init__(self, seed: int, hosts: Hosts, now: Callable[[], int]) -> None:
        self._dice = random.Random(seed)
        self._hosts = hosts
        self._now = now
        self._cursors: dict[str, list[tuple[Fields, str]]] = {}
        self._generations: dict[tuple[str, str], int] = {}
        """Of the timers that were seen, the newest last."""
        self._jobs: dict[str, None] = {}
        self._asked: Fields = {}
        self._made = 0
        self._asked_by_key: Request | None = None

    def draw(self) -> Request:
        verb = self._weighted(
            (40, self._create),
            (14, self._update),
            (14, self._delete),
            (8, self._get),
            (12, self._list),
            (8, self._run_now),
            (7, self._park),
            (7, self._resume),
            (7, self._batch),
            (8, self._bulk),
            (10, self._history),
            (4, self._next_page),
            (16, self._namespace),
            (26, self._job),
            (28, self._fetch),
            (3, self._nonsense),
            (3, self._stats),
        )
        request: Request = verb()
        return request

    def learn(self, request: Request, answer: tuple[int, Any]) -> None:
        status, body = answer
        if status != 200 or not isinstance(body, dict):
            return
        if body.get("nextCursor"):
            self._cursors.setdefault(request.path, []).append((self._asked, body["nextCursor"]))
            del self._cursors[request.path][:-5]
        if "timerId" in body:
            self._remember(body)
        if request.path.startswith("/v1/timers/"):
            for timer in body.get("timers", ()):
                self._remember(timer)
        if request.path == "/v1/jobs/create":
            self._jobs[body["name"]] = None

    def _remember(self, timer: Fields) -> None:
        key = (timer["namespace"], timer["timerId"])
        self._generations.pop(key, None)
        self._generations[key] = timer["generation"]

    # --- timers ---------------------------------------------------------------------------------------------

    def _create(self) -> Request:
        return self._request("/v1/timers/create", self._timer(), key=True)

    def _timer(self) -> Fields:
        asked = self._fresh() | {"callbackUrl": self._url()} | self._when(0.97)
        return asked | self._some(self._extras())

    def _extras(self) -> Fields:
        return {
            "payload": self._value(),
            "headers": self._headers(),
            "retryPolicy": self._policy(),
            "callbackTimeoutSeconds": self._rarely(self._of(0.5, 1801), 1, 30, 1800, 1.5),
            "delivery": self._rarely("never", "at-most-once", "at-least-once"),
            "labels": self._labels(),
        }

    def _update(self) -> Request:
        reference = self._reference()
        asked = reference | self._when(0.5) | self._some({"callbackUrl": self._url(), **self._extras()})
        if self._chance(0.4):
            known = self._generations.get((reference.get("namespace", "default"), reference["timerId"]), 1)
            asked["ifGeneration"] = self._of(known, known, known, known + 1, self._rarely(0, 2**62))
        return self._request("/v1/timers/update", asked)

    def _delete(self) -> Request:
        return self._request("/v1/timers/delete", self._reference())

    def _get(self) -> Request:
        return self._request("/v1/timers/get", self._reference())

    def _run_now(self) -> Request:
        return self._request("/v1/timers/run-now", self._reference())

    def _park(self) -> Request:
        return self._request("/v1/timers/park", self._reference())

    def _resume(self) -> Request:
        return self._request("/v1/timers/resume", self._reference())

    def _batch(self) -> Request:
        size = self._of(1, 2, 3, 10, 30)
        drawn = [self._timer() for _ in range(size)]
        # An id twice that is due at once might be called between its two writes, or not.
        timers: list[Any] = list({(timer.get("namespace"), timer["timerId"]): timer for timer in drawn}.values())
        if self._chance(0.2):
            timers.append(self._of({}, 7, None, {"timerId": "x"}, self._reference()))
        if self._chance(0.3):
            twice = {"timerId": "twice", "callbackUrl": self._url(), "delaySeconds": 3600}
            timers += [twice, {**twice, "payload": 2}]
        if self._chance(0.03):
            timers = [{**self._timer(), "timerId": f"many-{number}"} for number in range(self._of(999, 1000, 1001))]
        return self._request("/v1/timers/create-batch", {"timers": timers}, key=True)

    def _list(self) -> Request:
        asked = self._filter() | self._page()
        return self._request("/v1/timers/list", asked)

    def _bulk(self) -> Request:
        verb = self._of("delete", "park", "resume", "park", "resume")
        asked = self._filter() | self._some({"all": self._chance(0.8), "dryRun": self._chance(0.6)})
        return self._request(f"/v1/timers/bulk-{verb}", asked)

    def _history(self) -> Request:
        asked = self._reference() | self._page()
        now = self._now()
        asked |= self._some(
            {
                "outcomes": self._sample("succeeded", "failed", "unknown"),
                "since": now - self._of(0, 1000, 60_000, 3_600_000),
                "until": now - self._of(-1, 0, 1000, 60_000),
            },
            0.25,
        )
        return self._request("/v1/timers/history", asked)

    def _stats(self) -> Request:
        return self._request("/v1/timers/stats", self._namespace_field())

    def _filter(self) -> Fields:
        now = self._now()
        return self._namespace_field() | self._some(
            {
                "states": self._sample("scheduled", "running", "retrying", "parked"),
                "idPrefix": self._of(self._timer_id(), self._timer_id()[:1], "t", "t-1", "", "%", "_", "\\", "a"),
                "labels": dict(list(self._labels().items())[:2]),
                "dueFrom": self._of(0, now, now + 1000, now - 1000, FAR_MS),
                "dueTo": self._of(now, now + 5000, now + 3_600_000, FAR_MS, 0),
            },
            0.3,
        )

    def _reference(self) -> Fields:
        """Of a timer that probably exists."""
        if self._generations and self._chance(0.8):
            namespace, timer_id = self._of(*list(self._generations)[-IDS:])
            return {"timerId": timer_id} | ({"namespace": namespace} if namespace != "default" else {})
        return self._fresh()

    def _fresh(self) -> Fields:
        return {"timerId": self._timer_id(), **self._namespace_field()}

    def _timer_id(self) -> str:
        return self._of(*STRINGS) if self._chance(0.25) else f"{self._of('t', 't', 'T')}-{self._dice.randrange(IDS)}"

    def _when(self, probability: float) -> Fields:
        if not self._chance(probability):
            return {}
        now = self._now()
        instant = self._of(0, now, now - 1, now + 1, now + 700, now + 3000, now + 60_000, now + 86_400_000, FAR_MS)
        delay = self._of(0, 0.001, 0.7, 3, 60, 3600, 3_155_760_000)
        drawn: Fields = self._weighted(
            (5, {"executeAt": instant}),
            (5, {"delaySeconds": delay}),
            (1, {"executeAt": self._of("2031-02-03T04:05:06.789+02:00", "2031-02-03T04:05:06Z", "2031-02-03", -1)}),
            (0.3, {"executeAt": instant, "delaySeconds": delay}),
            (0.3, {"delaySeconds": self._of(-1, 3_155_760_001, "1", None)}),
        )
        return drawn

    def _url(self) -> str:
        good, gone, dead = self._hosts.good, self._hosts.gone, self._hosts.dead
        drawn: str = self._weighted(
            (12, f"{good}/ok"),
            (4, f"{good}/status/503"),
            (2, f"{good}/status/404"),
            (2, f"{good}/later"),
            (2, f"{good}/no"),
            (1, f"{good}/close"),
            (1, f"{good}/garbage"),
            (1, f"{good}/redirect"),
            (1, f"{good}/ok?q={self._of('a', '%27', '1%2B1')}"),
            (1, f"{gone}/status/410?n={self._dice.randrange(10**9)}"),
            (1, f"{dead}/"),
            (0.5, self._of("ftp://example.com/", "http://", "http://10.0.0.1/", "x" * 8, "http://a b/", "handler:x")),
        )
        return drawn

    def _policy(self) -> Any:
        """Without jitter: waits are drawn, and one may end before a leap of the clock and its twin behind it."""
        return self._weighted(
            (
                8,
                {"jitter": 0, "maxAttempts": self._of(1, 2, 3, 8)}
                | self._some(
                    {
                        "initialIntervalSeconds": self._of(0.5, 1, 30),
                        "maxElapsedSeconds": self._of(0, 10, 3600),
                        "schedule": [self._of(0.5, 2), 10],
                        "retryOn": self._sample("5xx", "404", "network", "timeout"),
                        "onExhausted": self._of("park", "drop"),
                    }
                ),
            ),
            (1, None),
            (0.2, {"jitter": 0, "maxAttempts": self._of(0, 1001)}),
            (0.2, {"jitter": 2}),
        )

    # --- namespaces -----------------------------------------------------------------------------------------

    def _namespace(self) -> Request:
        verb = self._of("create", "update", "get", "list", "delete", "reshard")
        name = self._rarely(self._of("absent", "bad name", "-x", ""), *NAMESPACES)
        settings: Fields = {
            "retryPolicy": {"jitter": 0, "maxAttempts": self._of(1, 2, 5)},
            "hostLimit": self._rarely(0, None, 1, 10_000),
            "historyRetentionDays": self._rarely(91, 60, 90),
        }
        match verb:
            case "create":
                asked = {"name": name, "shardCount": self._rarely(self._of(0, 4097), 1, 2, 4), **settings}
            case "update":
                asked = {"name": name, **self._some(settings)}
            case "get":
                asked = {"name": name}
            case "delete":  # more than a dry run would wait for the clock
                asked = {"name": name, "force": self._of(True, False), "dryRun": True}
            case "reshard":  # the same: only what there is
                asked = {"name": name}
            case _:
                asked = self._page()
        return self._request(f"/v1/namespaces/{verb}", asked)

    def _namespace_field(self) -> Fields:
        name = self._weighted((12, "default"), (1, self._of(*NAMESPACES)), (0.3, "absent"))
        return {} if name == "default" else {"namespace": name}

    # --- jobs -----------------------------------------------------------------------------------------------

    def _job(self) -> Request:
        verb = self._of(
            *["create"] * 4,
            *["update"] * 3,
            *("delete", "get", "list", *["pause"] * 2, *["resume"] * 3, "trigger", "preview", "runs", "runs"),
            "backfill",
            "rerun",
        )
        name = self._of(*self._jobs) if self._jobs and verb != "create" and self._chance(0.8) else self._of(*JOBS)
        asked: Fields = {"name": name}
        now = self._now()
        match verb:
            case "create":
                asked |= {"schedule": self._of(*SCHEDULES), "retryPolicy": {"jitter": 0, "maxAttempts": self._of(1, 2)}}
                asked |= self._some(self._job_fields(), 0.2)
            case "update":
                asked |= self._some({"schedule": self._of(*SCHEDULES, "bad"), **self._job_fields()}, 0.2)
                asked |= self._some({"ifGeneration": self._of(1, 2, 3)}, 0.3)
            case "list":
                asked = self._page() | self._some(
                    {
                        "namePrefix": self._of("", "a", "A", "daily", "%", "_"),
                        "states": self._sample("scheduled", "paused", "finished"),
                        "labels": dict(list(self._labels().items())[:1]),
                    },
                    0.3,
                )
            case "pause" | "resume":
                asked |= self._some({"by": self._of(*STRINGS)[:255]}) | (
                    self._some({"note": self._of(*STRINGS)}) if verb == "pause" else {}
                )
            case "trigger":
                asked |= self._some({"body": self._value(), "by": "ann"})
            case "preview":
                asked = self._of({"name": name}, {"schedule": self._of(*SCHEDULES, "61 * * * *"), "name": name})
                asked |= {"from": now, "count": self._of(1, 3, 30)}
            case "runs":
                asked = self._some({"name": name}, 0.8) | self._page()
                asked |= self._some(
                    {
                        "states": self._sample("succeeded", "failed", "skipped", "unknown"),
                        "kinds": self._sample("scheduled", "catchup", "manual", "backfill"),
                        "since": now - self._of(0, 60_000, 3_600_000),
                        "until": now - self._of(0, 60_000),
                    },
                    0.2,
                )
            case "backfill":
                asked |= self._of(
                    {"since": now - 60_000, "until": now},
                    {"since": now - self._of(600_000, 3_600_000), "until": now - self._of(0, 60_000), "dryRun": True},
                )
            case "rerun":
                asked = {"launchId": f"{name}@{(now // 60_000 - self._of(0, 1, 2)) * 60_000}"} | self._some(
                    {"by": "ann"}
                )
        if self._chance(0.04) and "name" in asked:
            asked["name"] = self._of(*STRINGS, "")
        return self._request(f"/v1/jobs/{verb}", asked, key=verb in ("create", "trigger", "backfill", "rerun"))

    def _job_fields(self) -> Fields:
        now = self._now()
        return {
            "timezone": self._rarely("Mars/Olympus", *ZONES),
            "url": self._url(),
            "method": self._rarely("TRACE", "GET", "POST", "PUT", "DELETE"),
            "headers": self._headers(),
            "body": self._value(),
            # Never two runs of a job at once: which of them ends first is nobody's decision here.
            "overlap": self._of("skip", "allowAll"),
            "catchup": self._of("none", "latest"),
            "catchupWindowSeconds": self._of(0, 120, 600),
            "startAt": now + self._of(-1000, 0, 90_000),
            "endAt": now + self._of(60_000, 3_600_000, 86_400_000),
            "maxRuns": self._rarely(0, 1, 3, 1_000_000_000),
            "labels": self._labels(),
            "jitterSeconds": self._of(0, 5),
            "dryRun": self._chance(0.2),
        }

    # --- fetches --------------------------------------------------------------------------------------------

    def _fetch(self) -> Request:
        verb = self._of("create", "create", "create", "get", "get", "list", "cancel", "stats", "redeliver")
        asked: Fields = {}
        if verb == "create":
            asked = {"request": {"url": self._url()}}
            asked["request"] |= self._some(
                {
                    "method": self._of("GET", "POST", "HEAD", "PUT"),
                    "headers": self._headers(),
                    "body": self._of(*STRINGS),
                    "maxRedirects": self._rarely(11, 0, 2),
                },
                0.3,
            )
            asked |= self._some(
                {
                    "timeoutSeconds": self._rarely(0.05, 30, 60, 1800),
                    "resultUrl": f"{self._hosts.good}/ok",
                    "context": self._value(),
                    "reqId": self._rarely("bad id", *FETCHES),
                    "labels": self._labels(),
                },
                0.6,
            )
        elif verb in ("get", "cancel"):
            asked = {"reqId": self._of(*FETCHES)}
        elif verb == "redeliver":
            asked = self._of({"reqId": self._of(*FETCHES)}, {"all": True, "dryRun": True})
        elif verb == "list":
            now = self._now()
            asked = self._page() | self._some(
                {
                    "states": self._sample("succeeded", "failed", "unknown", "cancelled", "pending"),
                    "labels": dict(list(self._labels().items())[:1]),
                    "since": now - self._of(0, 1000, 60_000),
                    "until": now + self._of(0, 1, -1000),
                },
                0.3,
            )
        return self._request(f"/v1/fetches/{verb}", asked)

    # --- parts ----------------------------------------------------------------------------------------------

    def _nonsense(self) -> Request:
        path = self._of("/v1/timers/create", "/v1/timers/list", "/v1/jobs/create", "/v1/fetches/create")
        return Request(path, self._of(*BAD_JSON))

    def _next_page(self) -> Request:
        pages = [(path, asked, cursor) for path, known in self._cursors.items() for asked, cursor in known]
        if not pages:
            return self._list()
        path, asked, cursor = self._of(*pages)
        if self._chance(0.1):
            cursor = self._of(cursor[:-2], cursor + "A", "", "AAAA", "x" * 1025)
        return self._request(path, {**asked, "cursor": cursor})

    def _page(self) -> Fields:
        return self._some({"limit": self._rarely(self._of(0, 1001), 1, 2, 3, 7, 1000)})

    def _labels(self) -> dict[str, str]:
        size = self._weighted((4, 1), (3, 2), (1, 0), (0.2, 32), (0.05, 33))
        names = ("tenant", "Tenant", "a.b", "$x", "é", *(s for s in STRINGS if len(s) <= 63))
        plain = {"tenant": self._of("acme", "Acme", "acme ", "zeta")} if self._chance(0.5) else {}
        if size > 2:
            return {f"label-{number}": self._of(*STRINGS) for number in range(size)}
        return plain | {self._of(*names): self._of("1", *STRINGS) for _ in range(size)}

    def _headers(self) -> dict[str, str]:
        size = self._weighted((5, 1), (1, 0), (0.3, 50), (0.1, 51))
        if size > 1:
            return {f"x-header-{number}": "v" for number in range(size)}
        name = self._weighted((5, self._of("x-one", "X-One", "authorization")), (1, self._of("webhook-id", "bad name")))
        value = self._weighted((5, self._of("v", "ü", "", "x" * 8192)), (1, self._of("a\nb", "x" * 8193)))
        return {name: value} if size else {}

    def _value(self) -> Any:
        """Any JSON, byte for byte what it was."""
        return self._weighted(
            (5, {"n": self._dice.randrange(1000)}),
            (3, self._of(*STRINGS)),
            (1, None),
            (1, self._of(0, -1, 2**63 - 1, -(2**63), 1.5, 1e308, True, [])),
            (0.1, 2**63),
            (1, {"$set": {"a.b": 1}, "": {"": ""}, "é": ["\\", '"', "'"]}),
            (0.4, "x" * self._of(102_398, 102_399, 50_000)),
            (0.2, "a\0b"),
            (0.3, [[[[[[[[[[[[]]]]]]]]]]]]),
            (0.1, "\ud800"),
        )

    def _request(self, path: str, asked: Fields, *, key: bool = False) -> Request:
        self._asked = {name: value for name, value in asked.items() if name != "cursor"}
        if self._chance(0.01):
            asked = {**asked, "unknown": 1}
        body = json.dumps(asked, ensure_ascii=self._chance(0.5)).encode("utf-8", "surrogatepass")
        self._made += 1
        if not key or not self._chance(0.12):
            return Request(path, body)
        # Soon another key: answers are kept for a day, by a clock that takes no part in leaps.
        named = Request(path, body, f"key-{self._made // 40}")
        again = self._asked_by_key
        if again is not None and again.key == named.key and self._chance(0.5):
            return again  # word for word
        self._asked_by_key = named
        return named

    def _of(self, *choices: Any) -> Any:
        return self._dice.choice(choices)

    def _rarely(self, bad: Any, *good: Any) -> Any:
        return bad if self._chance(0.04) else self._of(*good)

    def _chance(self, probability: float) -> bool:
        return self._dice.random() < probability

    def _some(self, fields: Fields, probability: float = 0.35) -> Fields:
        return {name: value for name, value in fields.items() if self._chance(probability)}

    def _sample(self, *choices: str) -> list[str]:
        return self._dice.sample(choices, self._dice.randint(1, len(choices)))

    def _weighted(self, *choices: tuple[float, Any]) -> Any:
        weights, values = zip(*choices, strict=True)
        return self._dice.choices(values, weights)[0]
