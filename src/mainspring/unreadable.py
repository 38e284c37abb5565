"""Rows and records that are there but cannot be read: whoever finds one sets it aside, and goes on with the others.

A flipped bit, a program that writes into our tables, a version of Mainspring that knows more than this one: what they
leave behind is nobody else's trouble. It is left where it is, untouched, because the next version may understand it. It
is passed over, counted, and named in one line of the log, once, and not at each look.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, TypeVar

from msgspec import Struct

from mainspring import telemetry
from mainspring.model import LAST_VERSION, Record, Shard, TimerKey

T = TypeVar("T")
R = TypeVar("R")

NAMED_LIMIT: Final = 1_000
"""How many are named. More of them would be no news, and remembering them all would have no bound."""
REASON_LIMIT: Final = 200


class Unreadable(Struct, frozen=True):
    """Something that is there but cannot be read."""

    kind: str
    """`timer`, `attempt`, `shard`, or the collection of a record."""
    name: str
    reason: str
    version: int = 0
    """The version by which it can be replaced or removed. 0: not even that can be read."""


_named: dict[tuple[str, str], Unreadable] = {}


def set_aside(found: Unreadable) -> None:
    """Say so, if nobody has said so yet."""
    place = (found.kind, found.name)
    if place in _named or len(_named) > NAMED_LIMIT:
        return
    _named[place] = found
    telemetry.unreadable.add(found.kind)
    if len(_named) > NAMED_LIMIT:
        telemetry.warning("more rows cannot be read than are listed here; see `mainspring admin doctor`")
    else:
        telemetry.warning(
            "a row cannot be read and was set aside", kind=found.kind, name=found.name, reason=found.reason
        )


def known() -> list[Unreadable]:
    """What this process has found, up to a limit. Some of it may have been repaired since."""
    return list(_named.values())


def timers_in(shard_ids: Container[int]) -> list[Unreadable]:
    """The timers of these shards among them."""
    return [one for one in known() if one.kind == "timer" and key_of_timer(one).shard_id in shard_ids]


def forget() -> None:
    """Start afresh: what is found from now on is news."""
    _named.clear()


def reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:REASON_LIMIT]


def timer_name(key: TimerKey) -> str:
    return f"{key.shard_id}/{key.uuid}"


def key_of_timer(found: Unreadable) -> TimerKey:
    """The inverse of `timer_name`."""
    shard_id, _, uuid = found.name.partition("/")
    return TimerKey(int(shard_id), uuid)


def attempt_of(key: TimerKey, error: Exception) -> Unreadable:
    return Unreadable("attempt", timer_name(key), reason_of(error))


def owned_shard(shard_id: int, version: int, owner: str | bytes) -> Shard:
    """A shard whose owner cannot be read has an unknown owner, and whoever claims it rewrites it."""
    if isinstance(owner, str):
        return Shard(shard_id, version, owner)
    try:
        return Shard(shard_id, version, owner.decode())
    except UnicodeDecodeError as error:
        set_aside(Unreadable("shard", str(shard_id), reason_of(error), version))
        return Shard(shard_id, version, owner.decode(errors="backslashreplace"))


def claimable(shards: Iterable[Shard | None]) -> list[Shard | None]:
    """None for each whose version cannot grow, which is set aside: nobody can claim it."""
    found: list[Shard | None] = []
    for shard in shards:
        if shard is not None and shard.version >= LAST_VERSION:
            set_aside(Unreadable("shard", str(shard.shard_id), "its version cannot grow", shard.version))
            found.append(None)
        else:
            found.append(shard)
    return found


def each(rows: Iterable[R], read: Callable[[R], T], name: Callable[[R, Exception], Unreadable]) -> list[T | Unreadable]:
    """Every row by itself, because one that cannot be read is no reason not to read the next."""
    found: list[T | Unreadable] = []
    for row in rows:
        try:
            found.append(read(row))
        except Exception as error:  # noqa: BLE001 - whatever a codec says of what somebody else wrote
            found.append(name(row, error))
    return found


def readable(found: Iterable[T | Unreadable]) -> list[T]:
    """Those that can be read. The others are set aside."""
    good: list[T] = []
    for one in found:
        if isinstance(one, Unreadable):
            set_aside(one)
        else:
            good.append(one)
    return good


def read_record(collection: str, record: Record, read: Callable[[bytes], T]) -> T | None:
    """What a record says. If it cannot be read, it is set aside, and this is None."""
    try:
        return read(record.value)
    except Exception as error:  # noqa: BLE001 - whatever a codec says of what somebody else wrote
        set_aside(Unreadable(collection, record.key, reason_of(error), record.version))
        return None
