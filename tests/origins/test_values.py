"""What may be kept, and requests and responses as synchronous code sees them."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from enum import StrEnum

import pytest

from mainspring.errors import InvalidInput
from mainspring.fetches.errors import FetchError, fetch_error
from mainspring.fetches.messages import ResponseView
from mainspring.origins import FetchTimeout, RequestSync, ResponseSync, State
from mainspring.origins.values import plain


class Colour(StrEnum):
    RED = "red"


def response(body: bytes, content_type: str = "application/json", status: int = 200) -> ResponseSync:
    return ResponseSync(status, headers={"content-type": content_type}, body=body)


# --- values -----------------------------------------------------------------------------------------------


def test_json_is_copied_and_tuples_become_lists() -> None:
    value = {"a": [1, 2.5, None, True], "b": ("x", {"y": "z"})}
    copy = plain(value, "here")
    assert copy == {"a": [1, 2.5, None, True], "b": ["x", {"y": "z"}]}
    assert copy["a"] is not value["a"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "got a datetime in here"),
        (b"bytes", "got a bytes in here"),
        ({"a": [1, {2, 3}]}, r"got a set in here\['a'\]\[1\]"),
        ({1: "a"}, "text as the keys of a dict, got a int in here"),
        (float("nan"), "got nan in here"),
        (2**63, "got 9223372036854775808 in here"),
        (Colour.RED, "got a Colour in here"),
        ("\ud800", "lone surrogate in here"),
    ],
)
def test_whatever_would_come_back_as_something_else_is_refused_with_its_place(value: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        plain(value, "here")


def test_values_that_are_nested_without_end_are_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidInput, match="at most 32 deep"):
        plain(endless, "here")


def test_state_is_a_mapping_that_copies_what_is_written_and_shares_what_is_read() -> None:
    state = State({})
    mine = [1]
    state["items"] = mine
    mine.append(2)
    assert state["items"] == [1]
    state["items"].append(3)
    assert state["items"] == [1, 3]
    state.setdefault("more", []).append(4)
    assert state.pop("more") == [4]
    state.setdefault("n", 0)
    state["n"] += 1
    assert dict(state) == {"items": [1, 3], "n": 1}
    del state["items"]
    assert list(state) == ["n"]
    assert state.get("items") is None
    with pytest.raises(KeyError):
        state["items"]
    for key in ("", "k" * 256, 7):
        with pytest.raises(InvalidInput, match="key of 1 to 255"):
            state[key] = 1  # type: ignore[index]
    with pytest.raises(InvalidInput, match=r"state\['when'\]"):
        state["when"] = datetime(2026, 1, 1, tzinfo=UTC)


# --- requests and responses ---------------------------------------------------------------------------------


def test_a_response_is_read_by_its_content_type_as_often_as_one_likes() -> None:
    latin = response("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", status=404)
    assert (latin.text(), latin.text(), latin.bytes()) == ("grün", "grün", b"gr\xfcn")
    assert (latin.ok, latin.status, latin.headers["Content-Type"]) == (False, 404, "text/plain; charset=ISO-8859-1")
    assert response(b'{"a":1}').json() == {"a": 1}
    assert response(b"\xff", "text/plain; charset=no-such-thing").text() == "�"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"<html>"])
def test_malformed_json_is_an_error_only_for_who_asks_for_json(body: bytes) -> None:
    broken = response(body)
    assert broken.ok
    assert broken.bytes() == body
    assert broken.text() == body.decode(errors="replace")
    with pytest.raises(InvalidInput, match="Expected JSON"):
        broken.json()


@pytest.mark.parametrize(("body", "encoded"), [("text", None), (None, "/w==")])
def test_a_response_is_the_same_after_it_was_stored(body: str | None, encoded: str | None) -> None:
    view = ResponseView(
        status=201,
        headers={"etag": "1"},
        body=body,
        body_base64=encoded,
        truncated=True,
        url="http://a/",
        redirected=True,
    )
    found = ResponseSync.of(view, req_id="r")
    assert found.bytes() == (b"text" if body else b"\xff")
    assert (found.status, found.ok, found.url, found.redirected, found.truncated) == (
        201,
        True,
        "http://a/",
        True,
        True,
    )
    assert (dict(found.headers), found.req_id) == ({"etag": "1"}, "r")


def test_a_request_knows_its_method_and_content_type_from_its_body() -> None:
    assert RequestSync("http://a/").method == "GET"
    asked = RequestSync("http://a/", json={"a": 1})
    assert (asked.method, asked.headers["content-type"], asked.json()) == ("POST", "application/json", {"a": 1})
    asked = RequestSync("http://a/", body="grün", method="PUT")
    assert (asked.method, asked.headers["content-type"]) == ("PUT", "text/plain; charset=utf-8")
    assert (asked.text(), asked.bytes()) == ("grün", "grün".encode())
    asked = RequestSync("http://a/", json=1, headers={"Content-Type": "application/vnd.x+json"})
    assert dict(asked.headers) == {"content-type": "application/vnd.x+json"}
    assert "content-type" not in RequestSync("http://a/", body=b"\x00").headers
    with pytest.raises(InvalidInput, match="one of body and json"):
        RequestSync("http://a/", body="a", json="a")


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["network", "timeout", "unreadable", "watchdog", "refused", "overloaded", "cancelled", "newer"]
)
def test_an_error_keeps_its_class_and_its_words_across_processes(kind: str) -> None:
    error = fetch_error(kind, "It may have been changed.", definite=False, req_id="r")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.detail, copy.definite, copy.req_id) == ("It may have been changed.", False, "r")
    assert isinstance(copy, FetchError)
    assert (type(copy) is FetchTimeout) == (kind == "timeout")
