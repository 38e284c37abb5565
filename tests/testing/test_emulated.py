"""A whole Mainspring in virtual time: what is due is called in order, and has ended before time goes on."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any

import pytest

from mainspring.delivery.call import Call
from mainspring.emulator.routes import MOVE, SHOW
from mainspring.errors import InvalidInput
from mainspring.jobs.handlers import DueJob
from mainspring.library import Mainspring
from mainspring.testing.emulated import TOKEN, URL, Emulated
from mainspring.testing.emulated_thread import EmulatedThread
from mainspring.testing.outside_world import MadeCall, NoAnswer
from mainspring.testing.target import Answer, TargetServer
from mainspring.timers.handlers import HANDLER_SCHEME
from mainspring.timers.messages import CreateTimer
from mainspring.timers.program import DueTimer

START = datetime(2026, 3, 27, 12, tzinfo=UTC)
SHOP = "https://shop.example/remind"
BANK = "https://bank.example/pay"


async def test_nothing_is_called_until_time_has_passed() -> None:
    async with Emulated(at=START) as ms:
        client = ms.async_client()
        await client.timers.create("tea", callback_url=SHOP, delay_seconds=7200, payload={"n": 1})
        assert await ms.advance(hours=1, minutes=59) == []
        [call] = await ms.advance(minutes=1)
        assert (call.method, call.url, call.at) == ("POST", SHOP, START + timedelta(hours=2))
        assert call.json()["payload"] == {"n": 1}
        history = await client.timers.history("tea")
        assert [attempt.outcome for attempt in history.attempts] == ["succeeded"]
        assert ms.now() == START + timedelta(hours=2)


async def test_what_is_due_at_different_instants_is_called_in_their_order() -> None:
    async with Emulated(at=START) as ms:
        client = ms.async_client()
        for minutes in (30, 10, 20):
            await client.timers.create(f"t{minutes}", callback_url=SHOP, delay_seconds=60 * minutes)
        calls = await ms.advance(days=365)
        assert [(call.at - START).total_seconds() / 60 for call in calls] == [10, 20, 30]


async def test_retries_follow_their_policy_in_virtual_time() -> None:
    async with Emulated(at=START) as ms:
        ms.answer("https://shop.example", Answer(status=503), NoAnswer("unreachable"), NoAnswer("timeout"), Answer())
        client = ms.async_client()
        await client.timers.create("tea", callback_url=SHOP, delay_seconds=0)
        assert len(await ms.advance()) == 1
        calls = await ms.advance(days=1)
        assert [call.headers["mainspring-attempt"] for call in calls] == ["2", "3", "4"]
        assert sorted(call.at for call in calls) == [call.at for call in calls]
        outcomes = [attempt.outcome for attempt in (await client.timers.history("tea")).attempts]
        assert outcomes == ["succeeded", "unknown", "failed", "failed"]


async def test_every_instant_of_a_job_is_run_across_a_change_of_the_clocks() -> None:
    async with Emulated(at=START) as ms:
        seen: list[tuple[datetime, datetime]] = []

        @ms.program.job("0 9 * * *", timezone="Europe/Berlin")
        async def report(job: DueJob) -> None:
            seen.append((job.scheduled_at, ms.now()))

        await ms.program.jobs.get("report")
        await ms.advance(days=4)
        assert [at.hour for at, _ in seen] == [8, 7, 7, 7]
        assert all(at == called for at, called in seen)


async def test_the_test_decides_what_a_fetch_gets() -> None:
    async with Emulated() as ms:
        ms.answer(BANK, Answer(status=201, body=b'{"paid":true}'), NoAnswer("timeout"), NoAnswer("unreachable"))
        paid, timed_out, unreachable = [
            await ms.program.fetch(BANK, method="POST", req_id=f"p{number}") for number in range(3)
        ]
        assert paid.response is not None
        assert paid.response.status == 201
        assert (timed_out.state, unreachable.state) == ("unknown", "failed")
        assert [call.url for call in ms.calls] == [BANK] * 3
        await ms.advance(days=1)
        assert len(ms.calls) == 3


async def test_the_test_decides_how_the_run_of_a_job_ends() -> None:
    async with Emulated() as ms:
        client = ms.async_client()
        await client.jobs.create("sync", "0 0 1 1 *", url=SHOP)
        for answer, state in ((Answer(), "succeeded"), (Answer(status=400), "failed")):
            ms.answer(SHOP, answer)
            await client.jobs.trigger("sync")
            await ms.advance(days=1)
            assert (await client.jobs.runs("sync")).runs[0].state == state


async def test_an_answer_may_depend_on_the_call_and_on_the_path() -> None:
    async with Emulated() as ms:

        def by_body(call: MadeCall) -> Answer:
            return Answer(body=call.body)

        ms.answer("https://bank.example", Answer(status=404))
        ms.answer(BANK, by_body)
        exact = await ms.program.fetch(f"{BANK}?n=1", method="POST", json={"n": 1})
        below = await ms.program.fetch("https://bank.example/payment")
        other = await ms.program.fetch("https://elsewhere.example/")
        answers = [result.response for result in (exact, below, other)]
        assert [answer and answer.status for answer in answers] == [200, 404, 200]
        assert answers[0] is not None
        assert answers[0].json() == {"n": 1}


async def test_calls_to_this_machine_are_really_made() -> None:
    async with TargetServer() as target, Emulated() as ms:
        await ms.async_client().timers.create("tea", callback_url=f"{target.url}/hook", delay_seconds=3600)
        [call] = await ms.advance(hours=1)
        assert target.requests[0].path == "/hook"
        assert target.requests[0].headers["webhook-id"] == call.headers["webhook-id"]


async def test_a_new_namespace_is_waited_for() -> None:
    async with Emulated() as ms:
        client = ms.async_client()
        await client.namespaces.create("shop")
        await client.timers.create("tea", namespace="shop", callback_url=SHOP, delay_seconds=0)
        assert len(await ms.advance()) == 1


@pytest.mark.slow
async def test_a_namespace_is_deleted_although_time_stands_still() -> None:
    async with Emulated(at=START) as ms:
        client = ms.async_client()
        await client.namespaces.create("shop")
        async with asyncio.timeout(20):
            assert (await client.namespaces.delete("shop")).deleted
        assert START < ms.now() < START + timedelta(minutes=1)


async def test_what_the_test_raises_leaves_the_block_as_it_is() -> None:
    own = ValueError("its own")
    with pytest.raises(ValueError, match="its own") as raised:
        async with Emulated():
            raise own
    assert raised.value is own


async def test_time_waits_for_a_call_under_way_and_no_watchdog_ends_it() -> None:
    async with TargetServer() as target, Emulated() as ms:
        client = ms.async_client()
        await client.fetches.create(f"{target.url}/delay/0.2", method="POST", req_id="slow")
        await ms.advance(hours=1)
        assert len(target.requests) == 1
        assert (await client.fetches.get("slow")).state == "succeeded"


async def test_patience_ends_with_a_word_about_what_is_still_in_flight() -> None:
    async with TargetServer() as target, Emulated(patience_seconds=0.2, drain_seconds=0.1) as ms:
        await ms.async_client().timers.create("tea", callback_url=f"{target.url}/hang", delay_seconds=60)
        with pytest.raises(TimeoutError, match="1 are still in flight"):
            await ms.advance(hours=1)
        assert target.requests[0].path == "/hang"


async def test_patience_is_for_a_standstill_and_not_for_the_whole_way() -> None:
    async with TargetServer() as target, Emulated(patience_seconds=0.3) as ms:
        client = ms.async_client()
        for hour in range(4):
            await client.timers.create(f"t{hour}", callback_url=f"{target.url}/delay/0.15", delay_seconds=3600 * hour)
        assert len(await ms.advance(hours=4)) == 4


async def test_time_never_goes_back_and_instants_have_an_offset() -> None:
    async with Emulated(at=START) as ms:
        with pytest.raises(InvalidInput, match="Expected an instant from 2026-03-27"):
            await ms.advance(hours=-1)
        with pytest.raises(InvalidInput, match="offset"):
            await ms.advance_to(datetime(2027, 1, 1))  # noqa: DTZ001
        assert await ms.advance_to(START + timedelta(days=1)) == []


async def test_an_answer_that_only_a_real_server_can_give_is_refused_in_words() -> None:
    async with Emulated() as ms:
        with pytest.raises(InvalidInput, match="TargetServer"):
            ms.answer(BANK, Answer(behaviour="drip"))
        with pytest.raises(InvalidInput, match="at least one answer"):
            ms.answer(BANK)


async def test_a_mistake_in_an_answer_is_told_where_it_is_made() -> None:
    with pytest.raises(InvalidInput, match=r"'timeout', 'lost' or 'unreachable', got 'time-out'"):
        NoAnswer("time-out")  # type: ignore[arg-type]
    ms: Any = Emulated()
    for wrong, words in (
        (503, r"Expected an Answer, a NoAnswer or a function .* got 503"),
        (pay_later, r"Expected a plain function, got the coroutine function 'pay_later'"),
    ):
        with pytest.raises(InvalidInput, match=words):
            ms.answer(BANK, wrong)
    for url, words in (
        ("bank.example/pay", "http:// or https://"),
        (f"{BANK}?n=1", "without a query"),
        (7, "Expected a URL, got 7"),
    ):
        with pytest.raises(InvalidInput, match=words):
            ms.answer(url, Answer())


async def pay_later(call: MadeCall) -> Answer:
    return Answer()


@pytest.mark.parametrize(
    ("said", "called", "status"),
    [
        ("https://Bank.example:443/pay", BANK, 503),
        (BANK, "https://BANK.example:443/pay", 503),
        (BANK, f"{BANK}/", 503),  # below it
        (f"{BANK}/", f"{BANK}/later", 503),
        (f"{BANK}/", BANK, 200),
        ("https://bank.example", BANK, 503),
        ("https://bank.example/", "https://bank.example", 503),
        (BANK, "https://bank.example/Pay", 200),
        (BANK, "https://bank.example:8443/pay", 200),
        (BANK, "http://bank.example/pay", 200),
    ],
)
async def test_an_answer_is_for_a_url_however_its_host_is_written(said: str, called: str, status: int) -> None:
    async with Emulated() as ms:
        ms.answer(said, Answer(status=503))
        result = await ms.program.fetch(called)
        assert result.response is not None
        assert result.response.status == status


async def test_what_an_answer_function_raises_is_raised_by_advance() -> None:
    def check(call: MadeCall) -> Answer:
        assert call.json()["payload"] == {"n": 2}, "the second"
        return Answer()

    async with Emulated() as ms:
        ms.answer(SHOP, check)
        await ms.async_client().timers.create("tea", callback_url=SHOP, delay_seconds=60, payload={"n": 1})
        with pytest.raises(AssertionError, match="the second"):
            await ms.advance(minutes=1)
        ms.answer(SHOP, Answer())
        assert len(await ms.advance(days=1)) == 1


async def fetch_without_an_answer(*, raised: Exception | None = None) -> None:
    async with Emulated() as ms:
        ms.answer(SHOP, lambda call: None)  # type: ignore[arg-type, return-value]
        await ms.program.fetch(SHOP)
        if raised is not None:
            raise raised


def fetch_in_a_thread_without_an_answer(*, raised: Exception | None = None) -> None:
    with EmulatedThread() as mainspring:
        mainspring.answer(SHOP, lambda call: None)  # type: ignore[arg-type, return-value]
        mainspring.run(lambda ms: ms.fetch(SHOP))
        if raised is not None:
            raise raised


async def test_what_no_advance_has_raised_is_raised_at_the_end() -> None:
    with pytest.raises(InvalidInput, match="got None"):
        await fetch_without_an_answer()
    with pytest.raises(ValueError, match="of the test"):
        await fetch_without_an_answer(raised=ValueError("of the test"))
    with pytest.raises(InvalidInput, match="got None"):
        fetch_in_a_thread_without_an_answer()
    with pytest.raises(ValueError, match="of the test"):
        fetch_in_a_thread_without_an_answer(raised=ValueError("of the test"))


async def test_a_function_that_it_calls_cannot_move_the_clock() -> None:
    async with Emulated(at=START) as ms:

        @ms.program.job("@hourly")
        async def impatient(job: DueJob) -> None:
            await ms.advance(hours=1)

        await ms.program.jobs.get("impatient")
        with pytest.raises(RuntimeError, match="in the test itself"):
            await ms.advance(hours=1)


@pytest.mark.parametrize("delay_seconds", [0, 60])
def test_a_function_in_a_thread_cannot_move_the_clock(delay_seconds: int) -> None:
    with EmulatedThread(at=START) as mainspring:
        told: SimpleQueue[str] = SimpleQueue()

        @mainspring.handler("impatient")
        def impatient(timer: DueTimer) -> None:
            try:
                mainspring.advance(hours=1)
            except RuntimeError as error:
                told.put(str(error))

        mainspring.run(lambda ms: ms.timers.create("tea", delay_seconds=delay_seconds, handler="impatient"))
        with pytest.raises(RuntimeError, match="in the test itself"):
            mainspring.advance(minutes=2)
        assert "in the test itself" in told.get(timeout=10)


def test_an_async_function_cannot_move_the_clock_without_a_loop_either() -> None:
    with EmulatedThread(at=START) as mainspring:

        @mainspring.job("@hourly")
        async def impatient(job: DueJob) -> None:
            mainspring.advance_to(START + timedelta(days=1))

        with pytest.raises(RuntimeError, match="in the test itself"):
            mainspring.advance(hours=1)


def test_an_instant_may_be_text() -> None:
    with EmulatedThread(at="2026-03-27T12:00:00Z") as mainspring:
        assert mainspring.now() == START
        mainspring.advance_to("2026-03-28T13:00:00+01:00")
        assert mainspring.now() == START + timedelta(days=1)
        wrong: Any
        for wrong, words in (
            ("tomorrow", "got 'tomorrow'"),
            ("2027-01-01T00:00:00", "offset"),
            (START.date(), "Expected an instant"),
        ):
            with pytest.raises(InvalidInput, match=words):
                mainspring.advance_to(wrong)


def test_a_mistake_in_a_registration_is_told_as_by_the_library() -> None:
    with EmulatedThread() as emulated:
        mainspring: Any = emulated
        with pytest.raises(InvalidInput, match=r'as in @ms.handler\("remind"\), got a function'):
            mainspring.handler(print)
        with pytest.raises(InvalidInput, match=r"Expected a schedule, .* got a function"):
            mainspring.job(print)
        mainspring.handler("remind")(print)
        with pytest.raises(InvalidInput, match="already has a function"):
            mainspring.handler("remind")(print)
        mainspring.handler("remind", replace=True)(print)


def test_a_setting_with_a_wrong_name_is_refused_with_the_right_one() -> None:
    for wrong, right in (("att", "at"), ("patience", "patience_seconds"), ("host_limits", "host_limit")):
        settings: dict[str, Any] = {wrong: 1}
        with pytest.raises(TypeError, match=f"did you mean '{right}'"):
            Emulated(**settings)


async def test_its_api_has_no_clock_to_move() -> None:
    async with Emulated() as ms:
        for path in (SHOW, MOVE):
            assert (await ms.send(_post(path))).status == 404


def _post(path: str) -> Call:
    headers = (("content-type", "application/json"), ("authorization", f"Bearer {TOKEN}"))
    return Call("POST", URL + path, headers, b"{}", 1000)


def test_without_a_loop_the_same_holds() -> None:
    with EmulatedThread(at=START) as mainspring:
        client = mainspring.client()
        client.timers.create("tea", callback_url=SHOP, delay_seconds=7200)
        [call] = mainspring.advance(hours=2)
        assert call.at == mainspring.now() == START + timedelta(hours=2)
        assert mainspring.calls == [call]
        assert mainspring.advance_to(START + timedelta(days=1)) == []


def test_functions_are_registered_without_a_loop() -> None:
    with EmulatedThread(at=START) as mainspring:
        seen: list[str] = []

        @mainspring.job("0 9 * * *")
        def report(job: DueJob) -> None:
            seen.append(job.name)

        @mainspring.job("@hourly", name="pulse")
        async def beat(job: DueJob) -> None:
            seen.append(job.name)

        mainspring.advance(days=1)
        assert (seen.count("report"), seen.count("pulse")) == (1, 24)


def test_a_handler_is_the_target_of_timers() -> None:
    with EmulatedThread(at=START) as mainspring:
        seen: list[datetime] = []

        @mainspring.handler("remind")
        def remind(timer: DueTimer) -> None:
            seen.append(mainspring.now())

        asked = CreateTimer(timer_id="tea", delay_seconds=7200, callback_url=f"{HANDLER_SCHEME}remind")
        mainspring.run(lambda ms: ms._instance.timers.create(asked))
        assert mainspring.advance(hours=3) == []  # nobody outside was called
        assert seen == [START + timedelta(hours=2)]


def test_a_programs_own_functions_run_with_it() -> None:
    async def pay(ms: Mainspring, amount: int) -> str:
        return (await ms.fetch(BANK, method="POST", json={"amount": amount})).state

    with EmulatedThread() as mainspring:
        mainspring.answer(BANK, NoAnswer("lost"))
        assert mainspring.run(pay, 12) == "unknown"
        assert mainspring.calls[0].json() == {"amount": 12}
        assert isinstance(mainspring.run(lambda ms: ms), Mainspring)


async def test_an_async_test_has_a_client_on_its_own_loop() -> None:
    with EmulatedThread() as mainspring:
        async with TargetServer() as target:  # on the loop of the test
            client = mainspring.async_client()
            await client.timers.create("tea", callback_url=target.url, delay_seconds=60)
            await asyncio.to_thread(mainspring.advance, minutes=1)
            assert len(target.requests) == 1


def test_a_wrong_setting_is_an_error_at_once_and_leaves_no_thread() -> None:
    with pytest.raises(InvalidInput, match="offset"), EmulatedThread(at=datetime(2027, 1, 1)):  # noqa: DTZ001
        raise AssertionError


def test_what_makes_it_an_emulator_cannot_be_set() -> None:
    with pytest.raises(InvalidInput, match="other than store"):
        Emulated(store="sqlite:///app.db")


def test_whoever_is_called_on_its_loop_is_told_not_to_wait_for_it() -> None:
    async def impatient(ms: Mainspring) -> None:
        mainspring.advance(hours=1)

    with EmulatedThread() as mainspring, pytest.raises(RuntimeError, match="in the test itself"):
        mainspring.run(impatient)
