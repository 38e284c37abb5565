"""Strict decoding: what is refused, what is named, and that nothing else ever comes out."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.errors import InvalidInput
from mainspring.fetches.messages import CreateFetch, FetchRef
from mainspring.jobs.messages import CreateJob, ListRuns
from mainspring.timers.messages import CreateTimer, CreateTimers, ListTimers
from mainspring.wire.strict_json import decode, decode_items
from tests.support.json_bodies import NOT_STRICT, payload


def refusal(body: bytes, message: type[msgspec.Struct] = CreateTimer) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        decode(body, message)
    return caught.value


@pytest.mark.parametrize("body", NOT_STRICT.values(), ids=NOT_STRICT)
def test_what_is_not_strict_json_is_refused(body: bytes) -> None:
    assert refusal(body).detail


FINE = {
    "nesting of 32": b"[" * 31 + b"]" * 31,
    "many brackets, not deep": b"[" + b"[]," * 500 + b"{}]",
    "brackets in text": json.dumps("[{" * 200).encode(),
    "largest integer": b"9223372036854775807",
    "smallest integer": b"-9223372036854775808",
    "long digits in text": b'"' + b"1" * 500 + b'"',
    "100 characters": b"0." + b"1" * 98,
    "large float": b"1e308",
    "written nul": b'"\\\\u0000"',
    "surrogate pair": b'"\\ud83d\\ude00"',
    "same key on two levels": b'{"a":{"a":1}}',
    "quotes": b'{"\\"":"\\"\\\\\\"","\\\\":"\\\\"}',
    "text like a key": b'{"a":"\\"a\\":1"}',
    "spaces": b' { "a" : [ 1 , 2 ] } ',
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_strict_json_is_taken_and_the_payload_kept_byte_for_byte(text: bytes) -> None:
    decoded = decode(payload(text), CreateTimer)
    assert isinstance(decoded.payload, msgspec.Raw)
    assert bytes(decoded.payload).strip() == text.strip()


def test_every_wrong_field_is_named() -> None:
    body = {
        "namespace": 1,
        "x/y~": 2,
        "headers": {"a": 1, "": "b", "c": "d"},
        "retryPolicy": {"maxAttempts": 0, "zz": 1, "schedule": [1, -1, 2, -3]},
        "executeAt": "tomorrow",
        "delivery": "maybe",
        "labels": {str(n): "" for n in range(33)},
        "payload": None,
    }
    error = refusal(json.dumps(body).encode())
    assert {item.pointer for item in error.errors} == {
        "/namespace",
        "/x~1y~0",
        "/headers/a",
        "/headers/",
        "/retryPolicy/maxAttempts",
        "/retryPolicy/zz",
        "/retryPolicy/schedule/1",
        "/retryPolicy/schedule/3",
        "/executeAt",
        "/delivery",
        "/labels",
        "/timerId",
        "/callbackUrl",
    }
    assert all(item.detail for item in error.errors)


def test_what_is_wrong_is_said_without_words_of_python() -> None:
    body = {
        "timerId": "",
        "namespace": 1,
        "callbackUrl": None,
        "executeAt": [],
        "headers": [],
        "labels": {"a": 1},
        "callbackTimeoutSeconds": "x",
        "retryPolicy": {"maxAttempts": 1.5, "schedule": {}},
    }
    error = refusal(json.dumps(body).encode())
    found = {item.pointer: item.detail for item in error.errors}
    assert found["/timerId"] == "Expected text of at least 1 character"
    assert found["/namespace"] == "Expected text, got a whole number"
    assert found["/callbackUrl"] == "Expected text, got null"
    assert found["/headers"] == "Expected an object, got an array"
    assert found["/labels/a"] == "Expected text, got a whole number"
    assert found["/retryPolicy/maxAttempts"] == "Expected a whole number, got a number"
    assert error.detail.startswith("The request is not valid: ")
    for text in (error.detail, *found.values()):
        assert not re.search(r"`|\b(str|int|float|bool|datetime|CreateTimer)\b", text), text
    batch = decode(b'{"timers":[3]}', CreateTimers)
    [found_in_item] = decode_items(batch.timers, CreateTimer)
    assert "Expected an object, got a whole number" in str(found_in_item)


@pytest.mark.parametrize(
    ("message", "field", "value", "words"),
    [
        (CreateTimer, "/namespace", "-a", "Expected only letters, digits, dots, underscores and dashes, the first"),
        (CreateJob, "/name", "a b", "Expected only letters, digits, dots, underscores and dashes, the first"),
        (CreateJob, "/route", "a", "Expected a path that begins with a slash"),
        (FetchRef, "/reqId", "a b", "Expected only letters, digits, dots, underscores, colons and dashes, the first"),
        (CreateFetch, "/executor", "A", "Expected only lower-case letters, digits and dashes, the first"),
    ],
)
def test_what_an_id_may_contain_is_said_in_words(
    message: type[msgspec.Struct], field: str, value: str, words: str
) -> None:
    error = refusal(json.dumps({field[1:]: value}).encode(), message)
    found = {item.pointer: item.detail for item in error.errors}
    assert found[field].startswith(words)


def test_which_outcomes_are_retried_is_said_in_words() -> None:
    error = refusal(b'{"retryPolicy":{"retryOn":["6xx"]}}')
    found = {item.pointer: item.detail for item in error.errors}
    assert found["/retryPolicy/retryOn/0"] == "Expected a status such as 503, a class such as 5xx, network or timeout"


@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        (b'{"timer_id":"a"}', "/timer_id", "unknown field; did you mean timerId?"),
        (b'{"callbackURL":"a"}', "/callbackURL", "unknown field; did you mean callbackUrl?"),
        (b'{"retryPolicy":{"maxAttempt":3}}', "/retryPolicy/maxAttempt", "unknown field; did you mean maxAttempts?"),
        (b'{"colour":"red"}', "/colour", "unknown field"),
    ],
)
def test_an_unknown_field_is_answered_with_the_one_that_was_meant(body: bytes, pointer: str, detail: str) -> None:
    found = {item.pointer: item.detail for item in refusal(body).errors}
    assert found[pointer] == detail


def test_the_number_of_named_fields_is_bounded() -> None:
    body = json.dumps({f"unknown-{n}": n for n in range(5000)}).encode()
    assert len(refusal(body).errors) == 100


def test_a_repeated_key_is_named() -> None:
    assert '"sku"' in refusal(payload(b'{"sku":1,"sku":2}')).detail


def test_an_item_of_a_batch_is_explained_from_its_own_root() -> None:
    batch = decode(b'{"timers":[{"timerId":7,"callbackUrl":"http://a.example/"},3]}', CreateTimers)
    items = decode_items(batch.timers, CreateTimer)
    pointers = [[field.pointer for field in item.errors] for item in items if isinstance(item, InvalidInput)]
    assert pointers == [["/timerId"], [""]]


NOT_STRICT_ITEMS = [
    "escaped nul",
    "nul in a key",
    "2**63",
    "2**64",
    "5000 digits",
    "repeated key",
    "too deep",
    "invalid utf-8",
]


@pytest.mark.parametrize("kind", NOT_STRICT_ITEMS)
def test_an_item_of_a_batch_that_is_not_strict_spoils_no_other(kind: str) -> None:
    batch = decode(b'{"timers":[%b,%b,%b]}' % (payload(b"1"), NOT_STRICT[kind], payload(b"2")), CreateTimers)
    good, bad, last = decode_items(batch.timers, CreateTimer)
    assert isinstance(good, CreateTimer)
    assert isinstance(bad, InvalidInput)
    assert isinstance(last, CreateTimer)


@pytest.mark.parametrize(
    "body",
    [
        b'{"timers":[%b],"timers":[]}',
        b'{"timers":[%b],"timers":[%b]}',
        b'{"timers":[%b],"more":[%b]}',
        b'{"timers":[%b],"\\u0000":1}',
        b'{"[%b]":1,"timers":[%b]}',
        b'{"timers":[%b],"more":9223372036854775808}',
        b'{"timers":[%b',
        b'{"timers":[%b]}}',
        b'{"timers":[%b, "\\ud800"]}',
        b"[%b]",
        b'{"timers":3}',
        b'{"timers":[]}',
        b'{"timers":null}',
        b"{}",
    ],
)
def test_around_its_items_a_batch_is_as_strict_as_anything(body: bytes) -> None:
    refusal(body.replace(b"%b", payload(b"1")), CreateTimers)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)
field_names = st.sampled_from([field.encode_name for field in msgspec.structs.fields(CreateTimer)]) | st.text()


def survives(body: bytes) -> None:
    for message in (CreateTimer, CreateTimers, ListTimers):
        try:
            decode(body, message)
        except InvalidInput as error:
            msgspec.json.encode(error.errors)  # and can be answered
            error.detail.encode()


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(field_names, json_values), st.booleans())
@pytest.mark.slow
def test_random_json_gives_a_message_or_invalid_input(value: dict[str, Any], ascii_only: bool) -> None:
    survives(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_give_invalid_input(body: bytes) -> None:
    survives(body)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.text(alphabet='a"\\\u00e9[{:,', max_size=3), st.text(alphabet='"\\:,{}[]')), max_size=5))
def test_a_repeated_key_is_found_exactly_when_there_is_one(pairs: list[tuple[str, str]]) -> None:
    inner = ",".join(f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=False)}" for key, value in pairs)
    body = payload(f"{{{inner}}}".encode())
    if len({key for key, _ in pairs}) == len(pairs):
        decode(body, CreateTimer)
    else:
        refusal(body)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("executeAt", "tomorrow", "Expected an instant such as 2026-12-01T09:00:00Z"),
        ("executeAt", "2026-12-01T09:00:00", "Expected an instant with a time zone, such as 2026-12-01T09:00:00Z"),
        ("executeAt", -1, "Expected a whole number of at least 0"),
        ("delivery", "once", "Expected at-least-once or at-most-once, got 'once'"),
        ("delaySeconds", -1, "Expected a number of at least 0"),
        ("callbackTimeoutSeconds", 1801, "Expected a number of at most 1800"),
        ("retryPolicy", {"onExhausted": "stop"}, "Expected park or drop, got 'stop'"),
    ],
)
def test_what_a_library_says_is_put_into_words_of_the_api(field: str, value: object, words: str) -> None:
    body = {"timerId": "a", "namespace": "app", "callbackUrl": "http://example.com/", field: value}

    [wrong] = refusal(json.dumps(body).encode()).errors

    assert wrong.detail == words


def test_a_body_that_is_empty_or_ends_too_early_is_told_apart() -> None:
    assert refusal(b"").detail == refusal(b" \n").detail == "Expected a JSON object, got an empty body"
    assert refusal(b'{"timerId": "a"').detail == "Expected JSON in UTF-8, got: text that ends too early"


def test_choices_inside_a_list_are_named() -> None:
    with pytest.raises(InvalidInput) as refused:
        decode(b'{"name":"a","states":["running","lost"]}', ListRuns)

    [wrong] = refused.value.errors
    assert wrong.pointer == "/states/1"
    assert re.fullmatch(r"Expected one of planned, .*, cancelled, got 'lost'", wrong.detail)
