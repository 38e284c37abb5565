"""One site with names without number, one namespace with timers without number: the others hardly notice."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.kernel.carrier import Ending, Lane
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Result, Timer
from tests.kernel.lateness import lateness
from tests.support.engine_cluster import Cluster, LedgerCarrier, done, simulate

SETTINGS = EngineSettings(window_limit=512, in_flight_limit=64)


@pytest.fixture(autouse=True)
def sites(monkeypatch: pytest.MonkeyPatch) -> None:
    """Destinations here are http://host.site; what stands before the first slash of a timer's id is its namespace."""

    def lane(self: LedgerCarrier, timer: Timer) -> Lane:
        url = timer.detail.callback_url
        namespace = timer.timer_id.partition("/")[0]
        return Lane(
            f"{namespace} {url}",
            self.cluster.lane_limit,
            namespace=namespace,
            site=url.rpartition(".")[2],
            calls_nobody=url.startswith("store:"),
        )

    monkeypatch.setattr(LedgerCarrier, "lane", lane)


def dead(cluster: Cluster, seconds: float = 30.0) -> tuple[float, Ending]:
    next_at = cluster.clock.now_ms() + 60_000
    return seconds, Ending(outcome=Result.UNKNOWN, next="retry", next_at=next_at, started_at=0, reachable=False)


def test_the_dead_names_of_one_site_do_not_keep_out_destinations_that_were_never_called() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda timer: dead(cluster) if "evil" in timer.detail.callback_url else (0.01, done())
        await cluster.join("a")
        for number in range(2000):
            await cluster.create(f"n/bad{number}", in_ms=100, url=f"http://h{number}.evil")
        await asyncio.sleep(2)
        for number in range(100):
            await cluster.create(f"n/good{number}", url=f"http://www.good{number}")
        await asyncio.sleep(5)
        late = lateness(cluster, "n/good")
        assert len(late) == 100
        assert max(late) < 500

    simulate(scenario, SETTINGS)


def test_a_dozen_sites_of_dead_names_do_not_keep_out_one_that_was_never_called() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda timer: dead(cluster, 5.0) if "evil" in timer.detail.callback_url else (0.01, done())
        await cluster.join("a")
        for number in range(4000):
            await cluster.create(f"n/bad{number}", in_ms=100, url=f"http://h{number}.evil{number % 12}")
        await asyncio.sleep(1)
        for number in range(40):
            await cluster.create(f"n/good{number}", url=f"http://www.good{number}")
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        late = lateness(cluster, "n/good")
        assert len(late) == 40
        assert max(late) < 500

    simulate(scenario, EngineSettings(window_limit=2048, in_flight_limit=512))


@pytest.mark.parametrize("answers", [1, 20])
def test_names_of_one_site_that_answer_and_then_hang_take_not_all_slots(answers: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        calls: dict[str, int] = {}

        def behave(timer: Timer) -> tuple[float, Ending]:
            url = timer.detail.callback_url
            if "evil" not in url:
                return 0.01, done()
            calls[url] = calls.get(url, 0) + 1
            return dead(cluster) if calls[url] > answers else (0.01, done())

        cluster.behave = behave
        await cluster.join("a")
        for number in range(100 * answers):
            await cluster.create(f"n/kind{number}", url=f"http://h{number % 100}.evil")
        await asyncio.sleep(20)
        assert all(calls[f"http://h{number}.evil"] == answers for number in range(100))
        for number in range(400):
            await cluster.create(f"n/bad{number}", url=f"http://h{number % 100}.evil")
        await asyncio.sleep(1)
        for number in range(60):
            await cluster.create(f"n/good{number}", url=f"http://www.good{number % 20}")
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        late = lateness(cluster, "n/good")
        assert len(late) == 60
        assert max(late) < 500

    simulate(scenario, SETTINGS)


@pytest.mark.parametrize("kind", ["dead", "answered once"])
def test_sites_without_number_that_hang_do_not_delay_calls_to_who_answers(kind: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        hangs = False

        def behave(timer: Timer) -> tuple[float, Ending]:
            return dead(cluster) if hangs and "bad" in timer.detail.callback_url else (0.01, done())

        cluster.behave = behave
        await cluster.join("a")
        for number in range(20 * 10):
            await cluster.create(f"n/known{number}", url=f"http://www.good{number % 20}")
        for number in range(500 if kind == "answered once" else 0):
            await cluster.create(f"n/kind{number}", url=f"http://www.bad{number}")
        await asyncio.sleep(20)
        hangs = True
        for number in range(500):
            await cluster.create(f"n/bad{number}", url=f"http://www.bad{number}")
        await asyncio.sleep(1)
        for number in range(200):
            await cluster.create(f"n/good{number}", url=f"http://www.good{number % 20}")
            await asyncio.sleep(0.02)
        await asyncio.sleep(1)
        late = lateness(cluster, "n/good")
        assert len(late) == 200
        assert max(late) < 500

    simulate(scenario, SETTINGS)


@pytest.mark.slow
def test_a_namespace_full_of_hanging_destinations_leaves_room_for_the_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda timer: dead(cluster) if "bad" in timer.detail.callback_url else (0.01, done())
        await cluster.join("a")
        await cluster.create("other/known", url="http://www.good")
        for number in range(2000):
            await cluster.create(f"n/bad{number}", in_ms=100, url=f"http://www.bad{number}")
        await asyncio.sleep(2)
        for number in range(100):
            await cluster.create(f"other/good{number}", url=f"http://www.good{number % 20}")
            await asyncio.sleep(0.02)
        await asyncio.sleep(2)
        late = lateness(cluster, "other/good")
        assert len(late) == 100
        assert max(late) < 500

    simulate(scenario, SETTINGS)


@pytest.mark.parametrize("answers", [0, 1, 10])
def test_five_namespaces_of_hanging_destinations_that_come_in_turn_do_not_starve_a_sixth(answers: int) -> None:
    """Of the same standing: never called, called once, or known for long."""

    async def scenario(cluster: Cluster) -> None:
        hangs = False

        def behave(timer: Timer) -> tuple[float, Ending]:
            return dead(cluster) if hangs and "bad" in timer.detail.callback_url else (0.01, done())

        cluster.behave = behave
        await cluster.join("a")
        for answer in range(answers):
            for number in range(500):
                await cluster.create(f"n{number % 5}/kind{answer}-{number}", url=f"http://www.bad{number}")
                if number < 20:
                    await cluster.create(f"other/kind{answer}-{number}", url=f"http://www.good{number}")
            await asyncio.sleep(10)
        hangs = True
        for namespace in range(5):
            for number in range(namespace, 1280, 5):
                await cluster.create(f"n{namespace}/bad{number}", url=f"http://www.bad{number % 500}")
            await asyncio.sleep(0.5)
        for number in range(100):
            await cluster.create(f"other/good{number}", url=f"http://www.good{number % 20}")
            await asyncio.sleep(0.02)
        await asyncio.sleep(2)
        late = lateness(cluster, "other/good")
        assert len(late) == 100
        assert max(late) < 500

    simulate(scenario, EngineSettings(window_limit=2048, in_flight_limit=256))


@pytest.mark.parametrize("namespace", ["n", "own"])
def test_what_calls_nobody_waits_for_no_slot_that_hanging_destinations_hold(namespace: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        def behave(timer: Timer) -> tuple[float, Ending]:
            return dead(cluster) if "bad" in timer.detail.callback_url else (0.01, done(reachable=None))

        cluster.behave = behave
        await cluster.join("a")
        for number in range(2000):
            await cluster.create(f"n/bad{number}", in_ms=100, url=f"http://www.bad{number}")
        await asyncio.sleep(2)
        for number in range(100):
            await cluster.create(f"{namespace}/look{number}", url="store:")
            await asyncio.sleep(0.02)
        await asyncio.sleep(2)
        late = lateness(cluster, f"{namespace}/look")
        assert len(late) == 100
        assert max(late) < 500

    simulate(scenario, SETTINGS)


@pytest.mark.slow
def test_who_has_few_destinations_has_as_much_as_who_has_many() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.5, done())
        await cluster.join("a")
        for number in range(3000):
            await cluster.create(f"n/many{number}", url=f"http://h{number % 300}.many")
        for number in range(1000):
            await cluster.create(f"n/few{number}", url=f"http://h{number % 2}.few")
        await asyncio.sleep(10)
        sent = [sending.timer.timer_id for sending in cluster.ledger.sendings]
        few = sum("few" in timer_id for timer_id in sent)
        assert few / len(sent) > 0.35

    simulate(scenario, SETTINGS)


@pytest.mark.slow
def test_a_namespace_that_is_alone_may_have_nearly_everything() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.5, done())
        member = await cluster.join("a")
        for number in range(3000):
            await cluster.create(f"n/t{number}", url=f"http://www.o{number % 300}")
        most = 0
        for _ in range(100):
            await asyncio.sleep(0.05)
            most = max(most, member.engine.dispatcher.in_flight)
        assert most > 48

    simulate(scenario, SETTINGS)


@pytest.mark.slow
def test_what_is_known_of_sites_is_bounded() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.behave = lambda _: (0.01, done())
        member = await cluster.join("a")
        for number in range(5000):
            await cluster.create(f"n{number}/t", in_ms=200, url=f"http://www.o{number}")
        await asyncio.sleep(60)
        assert len(cluster.ledger.sendings) == 5000
        assert len(member.engine.dispatcher._lanes.parties) <= 2 * 512  # the bound itself is what is tested

    simulate(scenario, SETTINGS)
