"""Continuations and services: what is wrong is said at once, what is right comes back after a restart."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread

import msgspec
import pytest

from mainspring.errors import ConfigError, InvalidInput
from mainspring.fetches.errors import FetchError
from mainspring.origins import RESULT, Continuation, Origin, ResponseSync
from mainspring.origins.continuation import Continuations, method_of
from mainspring.origins.services import Services

ANSWER = ResponseSync(200)


class Base(Origin):
    def inherited(self, result: ResponseSync | FetchError) -> None: ...


class Shop(Base):
    limit = 3

    def paid(self, order: int, result: ResponseSync | FetchError) -> None: ...

    def first(self, result: ResponseSync | FetchError, order: int, *, note: str = "") -> None: ...

    async def later(self, result: ResponseSync | FetchError) -> None: ...

    def _hidden(self, result: ResponseSync | FetchError) -> None: ...


CTN = Continuations(Shop)


def restored(continuation: Continuation) -> Continuation:
    return msgspec.json.decode(msgspec.json.encode(continuation), type=Continuation)


@pytest.mark.parametrize(
    ("made", "arguments", "keywords"),
    [
        (CTN.paid(7), [7, ANSWER], {}),
        (CTN.first(RESULT, 7), [ANSWER, 7], {}),
        (CTN.first(RESULT, 7, note="n"), [ANSWER, 7], {"note": "n"}),
        (CTN.paid(order=7, result=RESULT), [], {"order": 7, "result": ANSWER}),
        (CTN.inherited(), [ANSWER], {}),
    ],
)
def test_the_result_comes_last_or_where_its_marker_stands(
    made: Continuation, arguments: list[object], keywords: dict[str, object]
) -> None:
    assert restored(made) == made
    assert restored(made).filled(ANSWER) == (arguments, keywords)


@pytest.mark.parametrize("name", ["nothing", "limit", "later", "_hidden", "ctn", "state"])
def test_a_name_that_is_no_public_synchronous_method_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(AttributeError, match=r"Shop \(first, inherited, paid\), got"):
        getattr(CTN, name)


def test_arguments_that_do_not_fit_or_are_not_json_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"Shop\.paid accepts in addition to the result: too many"):
        CTN.paid(1, 2)
    with pytest.raises(InvalidInput, match="missing a required argument"):
        CTN.paid()
    with pytest.raises(InvalidInput, match=r"got a object in argument 1 of Shop\.paid"):
        CTN.paid(object())
    with pytest.raises(InvalidInput, match=r"got a set in argument 'note' of Shop\.first"):
        CTN.first(RESULT, 7, note={1})


def test_an_override_is_found_by_the_name_of_what_it_overrides() -> None:
    class Special(Shop):
        def paid(self, order: int, result: ResponseSync | FetchError) -> None: ...

    assert method_of(Special, "paid") is Special.paid


def test_an_origin_is_named_by_its_class_unless_it_says_otherwise() -> None:
    class Renamed(Origin, name="Shop"): ...

    assert (Shop.origin_name, Renamed.origin_name) == ("Shop", "Shop")
    with pytest.raises(InvalidInput, match="identifier"):
        type("Odd", (Origin,), {}, name="a/b")


# --- services -----------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package that offers a service."""
    (tmp_path / "clockmaker.py").write_text(
        "made = []\n\nclass Clock:\n    def __init__(self):\n        made.append(self)\n"
    )
    about = tmp_path / "clockmaker-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: clockmaker\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[mainspring.services]\nclock = clockmaker:Clock\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "clockmaker"
    sys.modules.pop("clockmaker", None)


def test_services_of_packages_are_loaded_when_first_used_and_made_once(installed: str) -> None:
    services = Services()
    assert services.names() == ["clock", "proxy_fetch"]
    assert installed not in sys.modules
    clock = services.get("clock")
    assert services.get("clock") is clock
    assert sys.modules[installed].made == [clock]


def test_a_service_of_the_program_comes_before_one_of_a_package(installed: str) -> None:
    assert Services({"clock": lambda: "mine"}).get("clock") == "mine"
    assert installed not in sys.modules


def test_an_unknown_service_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"Expected a service \(mailer, proxy_fetch\), got 'mialer'"):
        Services({"mailer": object}).get("mialer")


def test_names_that_could_not_be_reached_are_refused() -> None:
    for name in ("proxy_fetch", "_private", "two words"):
        with pytest.raises(ConfigError):
            Services({name: object})


def test_a_service_is_made_once_though_many_threads_ask_for_it_together() -> None:
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    services = Services({"one": make})
    together = Barrier(8)
    got: list[object] = []

    def ask() -> None:
        together.wait(5)
        got.append(services.get("one"))

    threads = [Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert made == [got[0]]
    assert set(map(id, got)) == {id(made[0])}


def test_a_service_that_could_not_be_made_is_tried_again() -> None:
    tries = iter([ValueError("no network"), "made"])

    def make() -> object:
        outcome = next(tries)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    services = Services({"flaky": make})
    with pytest.raises(ValueError, match="no network"):
        services.get("flaky")
    assert services.get("flaky") == "made"
