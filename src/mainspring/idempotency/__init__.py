"""The work of a key runs once; everybody else gets its recorded outcome, or a clear refusal.

    keys             which payloads are the same: a canonical form, and its digest
    entries          what a store keeps about a key, byte by byte
    results          which results can be kept
    record           what callers get, and what they report about work whose outcome is unknown
    claims           the store as the protocol sees it: claim, look, replace, remove
    terms            what the protocol needs to know: settings, and how this program waits
    context          what work may ask about the claim under which it runs
    by_hand          what a person decides about a key: look, list what is unknown, settle, forget
    holder           what the holder of a claim does with it: renew, record, release
    uncertain        claims that may be in the store although nobody works under them
    core             the protocol: claim, run, record, replay; written once, independent of how waiting is done
    sync_processor   threads: `IdempotentProcessor`
    async_processor  asyncio: `AsyncIdempotentProcessor`; `loops` is how it waits
    decorator        `@idempotent`, for both
    transaction      the same in the caller's own transaction
    messages, service  the same as a server offers it over HTTP
    errors           what goes wrong with a key
    replays          counts, and what their ratio means
    stores/          where claims live

and at the edges, loaded only by whoever names them:

    http/            `Idempotency-Key` for ASGI applications, and the receiving end of webhooks
    faststream       queue consumers

This is a library for programs that never run a Mainspring server: importing it loads nothing of one, and a database
driver only when its store is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mainspring.idempotency.async_processor import AsyncIdempotentProcessor
    from mainspring.idempotency.by_hand import KeyState
    from mainspring.idempotency.context import CurrentClaim, current_claim
    from mainspring.idempotency.decorator import idempotent
    from mainspring.idempotency.errors import InProgress, KeyReuse, LostClaim, NotRecorded, UnknownOutcome
    from mainspring.idempotency.keys import DEFAULT_EXCLUDED, canonical, payload_key
    from mainspring.idempotency.record import IdempotencyRecord, NotDone, Resolved, Unresolved
    from mainspring.idempotency.stores import IdempotencyStore
    from mainspring.idempotency.stores.memory import InMemoryStore
    from mainspring.idempotency.stores.records import PostgresStore, RecordsStore, RedisStore, SQLiteStore, UrlStore
    from mainspring.idempotency.sync_processor import IdempotentProcessor

__all__ = [
    "DEFAULT_EXCLUDED",
    "AsyncIdempotentProcessor",
    "CurrentClaim",
    "IdempotencyRecord",
    "IdempotencyStore",
    "IdempotentProcessor",
    "InMemoryStore",
    "InProgress",
    "KeyReuse",
    "KeyState",
    "LostClaim",
    "NotDone",
    "NotRecorded",
    "PostgresStore",
    "RecordsStore",
    "RedisStore",
    "Resolved",
    "SQLiteStore",
    "UnknownOutcome",
    "Unresolved",
    "UrlStore",
    "canonical",
    "current_claim",
    "idempotent",
    "payload_key",
]

_WHERE: Final = {
    "async_processor": ("AsyncIdempotentProcessor",),
    "by_hand": ("KeyState",),
    "context": ("CurrentClaim", "current_claim"),
    "decorator": ("idempotent",),
    "errors": ("InProgress", "KeyReuse", "LostClaim", "NotRecorded", "UnknownOutcome"),
    "keys": ("DEFAULT_EXCLUDED", "canonical", "payload_key"),
    "record": ("IdempotencyRecord", "NotDone", "Resolved", "Unresolved"),
    "stores": ("IdempotencyStore",),
    "stores.memory": ("InMemoryStore",),
    "stores.records": ("PostgresStore", "RecordsStore", "RedisStore", "SQLiteStore", "UrlStore"),
    "sync_processor": ("IdempotentProcessor",),
}
_MODULE_OF: Final = {name: f"{__name__}.{module}" for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> object:
    # Loaded when used: a program that needs one processor and one store does not pay for the others.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found
