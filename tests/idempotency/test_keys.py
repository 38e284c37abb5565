"""Which payloads are the same, by rule; and the published vectors."""

from __future__ import annotations

import enum
import json
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from hashlib import sha256
from ipaddress import ip_address, ip_interface, ip_network
from itertools import combinations
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.errors import ConfigError, InvalidInput
from mainspring.idempotency import canonical, payload_key
from mainspring.idempotency.keys import Identities, Identity, address, exclusion
from tests.support.source_tree import ROOT

VECTORS = ROOT / "docs" / "reference" / "idempotency-vectors.json"


def identity(payload: object, key: str | None = None) -> Identity:
    return Identities("scope", {}).of(payload, key)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 1


class Name(enum.StrEnum):
    ANN = "ann"


@dataclass
class Point:
    kind: ClassVar[str] = "point"
    x: int
    y: int


class PointStruct(msgspec.Struct):
    x: int
    y: int


class Pair(NamedTuple):
    x: int
    y: int


@attrs.define
class PointAttrs:
    x: int
    y: int


class PointModel(pydantic.BaseModel):
    x: int = pydantic.Field(alias="X")
    y: int = pydantic.Field(exclude=True)


class PointRoot(pydantic.RootModel[dict[str, int]]):
    pass


@pydantic.dataclasses.dataclass
class PointPydantic:
    x: int
    y: int


class Home(PurePosixPath):
    pass


EQUAL: list[list[Any]] = [
    [1, 1.0, Decimal(1), Decimal("1.00"), Decimal("1E0"), Level.HIGH],
    [0, 0.0, -0.0, Decimal("0.000"), Decimal("-0")],
    [100, 1e2, Decimal("1E+2"), Decimal("100.0")],
    [0.1, Decimal("0.1"), Decimal("0.10")],
    [1e22, 10**22, Decimal("1e22")],
    [-12.5, Decimal("-12.50")],
    [1.5e-7, Decimal("0.00000015")],
    ["red", Colour.RED],
    ["ann", Name.ANN],
    [[1, 2], (1, 2), Pair(1, 2)],
    [{1, 2, 3}, frozenset([3, 2, 1])],
    [{"x": 1, "y": 2}, {"y": 2, "x": 1}, Point(1, 2), PointStruct(1, 2), OrderedDict(y=2, x=1)],
    [{"x": 1, "y": 2}, MappingProxyType({"x": 1, "y": 2})],
    [{"x": 1, "y": 2}, PointAttrs(1, 2), PointModel(X=1, y=2), PointRoot({"x": 1, "y": 2}), PointPydantic(1, 2)],
    [Path("/a/b"), PurePosixPath("/a//b"), PureWindowsPath("\\a\\b"), Home("/a/b")],
    [timedelta(hours=1), timedelta(seconds=3600)],
    [ip_address("::1"), ip_address("0:0::1")],
    [b"ab", bytearray(b"ab"), memoryview(b"ab")],
    [datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))],
]

DIFFERENT: list[Any] = [
    None, True, False, 0, 1, "1", b"1", "true", "null", 0.1, 0.1 + 2e-17, 2**53, 2**53 + 1, "",
    [], {}, set(), [1], {1}, [[1]], {"1": 1}, {"a": None}, [None], "a", ["a", "b"], ["ab"], "a,b", 'a","b',
    datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1), date(2026, 1, 1), "2026-01-01",  # noqa: DTZ001
    UUID(int=1), str(UUID(int=1)), UUID(int=1).bytes, -1, 10, 1e-300, 1e300,
    time(10), time(10, tzinfo=UTC), "10:00:00.000000", timedelta(seconds=1), timedelta(microseconds=1), timedelta(),
    Path("a"), Path("A"), ip_address("10.0.0.1"), "10.0.0.1", ip_interface("10.0.0.0/8"), ip_network("10.0.0.0/8"),
]  # fmt: skip


@pytest.mark.parametrize("same", EQUAL)
def test_equal_payloads_have_one_form(same: list[object]) -> None:
    assert len({canonical(value) for value in same}) == 1


def test_different_payloads_have_different_forms() -> None:
    for one, other in combinations(DIFFERENT, 2):
        assert canonical(one) != canonical(other), (one, other)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_a_payload_that_went_through_json_is_the_same(payload: object) -> None:
    form = canonical(payload, exclude_fields=())
    assert canonical(json.loads(json.dumps(payload)), exclude_fields=()) == form
    assert canonical(json.loads(json.dumps(payload), parse_float=Decimal), exclude_fields=()) == form


def _kindly(value: object) -> object:
    """A value that is equal to another one exactly if the rule says that they are the same."""
    match value:
        case bool() | None:
            return ("constant", value)
        case int() | float():
            return ("number", Decimal(repr(value)))
        case str():
            return ("text", value)
        case list():
            return ("list", [_kindly(item) for item in value])
        case dict():
            return ("object", {name: _kindly(item) for name, item in value.items()})
    raise AssertionError(value)


@given(JSON, JSON)
def test_forms_are_equal_exactly_if_payloads_are(one: object, other: object) -> None:
    same = canonical(one, exclude_fields=()) == canonical(other, exclude_fields=())
    assert same == (_kindly(one) == _kindly(other))


def _cycle() -> object:
    cycle: list[object] = []
    cycle.append(cycle)
    return cycle


@pytest.mark.parametrize(
    "payload",
    [
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("Infinity"),
        _cycle(),
        {1: "a"},
        {"a": 1, 2: 3},
        {None: 1},
        "\ud800",
        {"\udfff": 1},
        object(),
        10**5000,
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=5))),
        1j,
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_what_has_no_form_is_refused(payload: object) -> None:
    with pytest.raises(InvalidInput, match="Expected"):
        payload_key({"payload": payload})


def test_a_deep_payload_is_refused() -> None:
    payload: object = 1
    for _ in range(70):
        payload = [payload]
    with pytest.raises(InvalidInput, match="levels"):
        payload_key(payload)


def test_envelope_fields_do_not_count() -> None:
    bare = {"order": 17, "meta": {"source": "web"}}
    sent = bare | {"received_at": "now", "correlation_id": "c", "retry_count": 3, "source_ip": "::1"}
    assert payload_key(sent) == payload_key(bare)
    assert payload_key(sent, exclude_fields=()) != payload_key(bare, exclude_fields=())


def test_paths_reach_into_objects_and_lists() -> None:
    paths = ["meta.trace_id", "items.seen_at", "gone"]
    one = {"meta": {"trace_id": "a", "kind": "x"}, "items": [{"sku": 1, "seen_at": 1}], "gone": 1, "trace_id": 5}
    other = {"meta": {"trace_id": "b", "kind": "x"}, "items": [{"sku": 1}], "trace_id": 5}
    assert payload_key(one, exclude_fields=paths) == payload_key(other, exclude_fields=paths)
    assert payload_key(one, exclude_fields=paths) != payload_key(one | {"trace_id": 6}, exclude_fields=paths)


def test_a_field_that_is_left_out_as_a_whole_stays_out() -> None:
    for paths in (["a", "a.b"], ["a.b", "a"]):
        assert payload_key({"a": {"b": 1, "c": 2}}, exclude_fields=paths) == payload_key({}, exclude_fields=paths)


@pytest.mark.parametrize("paths", ["received_at", ["a..b"], [""], ["."]])
def test_paths_that_name_nothing_are_refused(paths: Any) -> None:
    with pytest.raises(ConfigError):
        exclusion(paths)


def test_a_callers_key_never_meets_a_derived_one() -> None:
    derived = identity("payload")
    assert derived.key == payload_key("payload")
    for key in (derived.fingerprint, '"payload"', "key:"):
        assert identity("payload", key).address != derived.address
    assert identity("payload", derived.key) == derived  # its own, given back
    with pytest.raises(InvalidInput, match="sha256-"):
        identity("other", derived.key)
    assert address("scope", derived.key) == derived.address


@pytest.mark.parametrize("key", ["", "x" * 256, "\ud800", 17, b"k", UUID(int=1), ["k"]])
def test_keys_out_of_bounds_are_refused(key: Any) -> None:
    with pytest.raises(InvalidInput, match="Expected"):
        identity(1, key)
    with pytest.raises(InvalidInput, match="Expected"):
        address("scope", key)


def test_kinds_that_look_alike_inside_of_a_payload_do_not_become_one() -> None:
    values = [{"a": 1}, {"a": "1"}, {"a": True}, {"a": b"1"}, {"a": None}, {"a": [2]}, {"a": {2}}, {"a": {"2": 2}}]
    assert len({canonical(value) for value in values}) == len(values)
    assert canonical({"b": 10, "a": (2.0,)}) == canonical({"a": [2], "b": Decimal("1E1")}) == b'{"a":[2],"b":1e1}'
    for buffer in (array("d", [1.0]), array("b", b"1")):
        with pytest.raises(InvalidInput):
            canonical({"a": buffer})


def test_a_payload_is_not_changed_by_looking_at_it() -> None:
    payload = {"cents": 100, "received_at": "now", "lines": [{"at": date(2026, 1, 1), "count": 20}], Name.ANN: 1}
    before = repr(payload)
    canonical(payload)
    assert repr(payload) == before


def test_a_struct_is_what_its_json_is() -> None:
    class Tagged(msgspec.Struct, tag="card", rename="camel"):
        card_number: str
        note: str | msgspec.UnsetType = msgspec.UNSET

    assert canonical(Tagged("4")) == canonical({"type": "card", "cardNumber": "4"})


def test_all_fields_of_a_model_count() -> None:
    """Also those that a subclass adds to what a field is annotated with, and those that came without being declared."""

    class Card(PointModel):
        number: str

    class Order(pydantic.BaseModel, extra="allow"):
        payment: PointModel

    one, other = (Order(payment=Card(X=1, y=2, number=number)) for number in ("4", "5"))
    assert canonical(one) == canonical({"payment": {"x": 1, "y": 2, "number": "4"}}) != canonical(other)
    assert canonical(Order(payment=PointModel(X=1, y=2), note="x")) == canonical(  # type: ignore[call-arg]
        {"payment": {"x": 1, "y": 2}, "note": "x"}
    )
    assert canonical(Order(payment=PointModel(X=1, y=2)), exclude_fields=["payment.y"]) == b'{"payment":{"x":1}}'


def test_what_has_no_form_is_named_by_its_path() -> None:
    payload = {"order": {"lines": [{"sku": 1}, {"sku": object()}]}, "received_at": 1}
    with pytest.raises(InvalidInput, match=r"got object in the payload's field order\.lines\[1\]\.sku$") as refused:
        canonical(payload)
    assert [error.pointer for error in refused.value.errors] == ["/order/lines/1/sku"]
    with pytest.raises(InvalidInput, match=r"got NaN in the payload's field a\.b$"):
        canonical({"a": {"b": float("nan")}})


def test_a_program_may_say_what_stands_for_a_value_of_its_own() -> None:
    def encode(value: object) -> object:
        if isinstance(value, complex):
            return [value.real, value.imag]
        raise TypeError("unknown")

    assert canonical({"at": 1 + 2j}, encode=encode) == canonical({"at": [1, 2]})
    assert payload_key(1j, encode=encode) == payload_key([0, 1])
    assert canonical(Path("a"), encode=encode) == canonical(Path("a"))  # what has a form keeps it
    with pytest.raises(InvalidInput, match=r"Expected encode= to give a value for object.*field at$"):
        canonical({"at": object()}, encode=encode)
    with pytest.raises(InvalidInput, match="levels"):
        canonical(1j, encode=lambda value: value)


def test_the_published_vectors_hold() -> None:
    document = json.loads(VECTORS.read_text(), parse_float=Decimal)
    assert len(document["vectors"]) >= 20
    for vector in document["vectors"]:
        payload = _read(vector["payload"])
        form = canonical(payload, exclude_fields=vector["exclude"])
        assert form.decode() == vector["canonical"], vector["name"]
        assert sha256(form).hexdigest() == vector["sha256"], vector["name"]
    for vector in document["callerKeys"]:
        assert address(vector["scope"], vector["key"]) == vector["record"]


def _read(value: object) -> object:
    """`{"$type": kind, "value": text}` stands for what JSON has no word for."""
    match value:
        case {"$type": kind, "value": text}:
            assert isinstance(kind, str)
            return _KINDS[kind](text)
        case dict():
            return {name: _read(item) for name, item in value.items()}
        case list():
            return [_read(item) for item in value]
    return value


_KINDS: dict[str, Any] = {
    "bytes": bytes.fromhex,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "uuid": UUID,
    "time": time.fromisoformat,
    "timedelta": lambda microseconds: timedelta(microseconds=microseconds),
    "path": PurePosixPath,
    "ipAddress": ip_address,
    "ipInterface": ip_interface,
    "ipNetwork": ip_network,
    "set": lambda items: {_read(item) for item in items},
}
