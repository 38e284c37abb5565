"""The registry: a record per job, in the main store or in one of its own that other programs write, too.

Every run reads the definition of its job, because a pause that was acknowledged stops what has not begun. Reading
is a query; understanding what was read is remembered for as long as the text stays the same, but for its `lastRun`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import Final

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.errors import MainspringError, plain_words
from mainspring.jobs.checks import check, check_name
from mainspring.jobs.foreign import in_our_words, read_last_run, split, with_last_run
from mainspring.jobs.record import BrokenJob, Definition, Job, Routing, calendar_of
from mainspring.model import Record, to_json
from mainspring.store import ReadsManyRecords, RecordStore, ends_scan, first_version
from mainspring.wire.checks import CheckUrl

JOBS: Final = "jobs:meta"
_REMEMBERED: Final = 20_000
_REMEMBERED_BYTES: Final = 4_096
"""What a larger record means is worked out each time: remembering many of them would take gigabytes."""
_TRIES: Final = 5
"""How often `lastRun` is written anew because the record has changed meanwhile."""


class _Understood(Struct, frozen=True):
    """What a record means."""

    record: Record
    text: bytes
    """Without `lastRun`."""
    job: Job | BrokenJob


class Registry:
    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        routing: Routing,
        *,
        randomness: Random,
        check_url: CheckUrl,
    ) -> None:
        """What `check_url` refuses is broken: nobody has checked a record of another program before."""
        self._records = records
        self._many = records if isinstance(records, ReadsManyRecords) else None
        self._clock = clock
        self._random = randomness
        self._read: dict[str, _Understood] = {}
        self._check_url = check_url
        self.routing = routing

    async def get(self, name: str) -> Job | BrokenJob | None:
        record = await self._record(name)
        return None if record is None else self.understand(record)

    @property
    def reads_many(self) -> bool:
        """Whether the store can read many definitions at once."""
        return self._many is not None

    async def get_many(self, names: Sequence[str]) -> list[Job | BrokenJob | None]:
        assert self._many is not None, "Expected a store that reads many records at once"
        found = await self._many.get_records([(JOBS, name) for name in names], now=self._clock.now_ms())
        return [None if record is None else self.understand(record) for record in found]

    async def page(self, *, after: str, limit: int) -> tuple[list[Job | BrokenJob], str]:
        """Jobs after a name, in the order of their names, and the name after which there are more; '': no more."""
        page = await self._records.scan_records(JOBS, now=self._clock.now_ms(), after=after, limit=limit)
        return [self.understand(record) for record in page], "" if ends_scan(page, limit) else page[-1].key

    async def put(self, name: str, definition: Definition, *, expect: int) -> Job | BrokenJob | None:
        """Write if the record has this version (0: absent). None if it does not.

        A recreated job has no version in common with its deleted namesake: a change that was meant for the old one
        and comes late misses it.
        """
        first = first_version(self._random)
        record = await self._records.put_record(
            JOBS, name, to_json(definition), expect=expect, now=self._clock.now_ms(), first=first
        )
        return None if record is None else self.understand(record)

    async def put_last_run(self, name: str, instant: int, *, created_at: int) -> None:
        """Write into the record which instant was run last, and nothing else, by compare-and-set.

        Unless the record says so already, or tells of a later one; or there is none any more, or it is of another job
        (`created_at`), or it makes no sense. If it changes again and again meanwhile, it is left as it is.
        """

        def lags(record: Record) -> bool:
            job = self.understand(record)
            if not isinstance(job, Job) or job.definition.created_at != created_at:
                return False
            return job.definition.run_until(self._clock.now_ms()) < instant

        known = self._read.get(name)  # what a run has read a moment ago is mostly still there
        record = known.record if known is not None and lags(known.record) else await self._record(name)
        for _ in range(_TRIES):
            if record is None or not lags(record):
                return
            value, now = with_last_run(record.value, instant), self._clock.now_ms()
            written = await self._records.put_record(
                JOBS, name, value, expect=record.version, now=now, expires_at=record.expires_at
            )
            if written is not None:
                self.understand(written)
                return
            record = await self._record(name)

    async def _record(self, name: str) -> Record | None:
        return await self._records.get_record(JOBS, name, now=self._clock.now_ms())

    async def delete(self, name: str, *, expect: int) -> bool:
        return await self._records.delete_record(JOBS, name, expect=expect, now=self._clock.now_ms())

    def understand(self, record: Record) -> Job | BrokenJob:
        """What a record means, whether or not it is written."""
        known = self._read.get(record.key)
        if known is not None and known.record == record:
            return known.job
        text, written = split(record.value)
        if known is not None and known.text == text:
            job = _with(known.job, record.version, read_last_run(written))
        else:
            job = _read(record, text, read_last_run(written), self.routing, check_url=self._check_url)
        if len(record.value) <= _REMEMBERED_BYTES:
            if len(self._read) >= _REMEMBERED:
                self._read.clear()
            self._read[record.key] = _Understood(record, text, job)
        else:
            self._read.pop(record.key, None)
        return job


def read(record: Record, routing: Routing, *, check_url: CheckUrl) -> Job | BrokenJob:
    """What a record of the registry means."""
    text, last_run = split(record.value)
    return _read(record, text, read_last_run(last_run), routing, check_url=check_url)


def _with(job: Job | BrokenJob, version: int, last_run: int | None) -> Job | BrokenJob:
    """The same job, as another version of its record has it."""
    definition = None if job.definition is None else replace(job.definition, last_run=last_run)
    return replace(job, version=version, definition=definition)


def _read(
    record: Record, text: bytes, last_run: int | None, routing: Routing, *, check_url: CheckUrl
) -> Job | BrokenJob:
    """`text` is that of the record, without `lastRun`."""
    name, seal = record.key, blake2b(text, digest_size=8).hexdigest()
    definition: Definition | None = None
    try:
        check_name(name)
        definition = replace(_definition(text, routing), last_run=last_run)
        check(name, definition, routing, check_url=check_url)
        terms = definition.terms
        calendar = calendar_of(name, terms)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"Expected a job as JSON, got: {plain_words(str(error))}"
        return _broken(record, seal, problem, definition)
    except MainspringError as error:
        return _broken(record, seal, error.detail, definition)
    url = routing.url_of(name, definition)
    return Job(
        name=name,
        version=record.version,
        seal=seal,
        definition=definition,
        calendar=calendar,
        url=url,
        terms=terms,
        policy=definition.policy,
    )


def _definition(text: bytes, routing: Routing) -> Definition:
    try:
        definition = msgspec.json.decode(text, type=Definition)
    except msgspec.ValidationError:
        words = in_our_words(text, base_url=routing.base_url)
        definition = msgspec.json.decode(words, type=Definition, strict=False)
    is_null = definition.body is not UNSET and bytes(definition.body) == b"null"
    return replace(definition, body=UNSET) if is_null else definition


def _broken(record: Record, seal: str, problem: str, definition: Definition | None) -> BrokenJob:
    # The settings may be at fault: under others the same text has another seal, and its clock is told.
    return BrokenJob(
        name=record.key, version=record.version, seal=f"{seal}-broken", problem=problem, definition=definition
    )
