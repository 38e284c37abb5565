"""The registry: a record per job, in the main store or in one of its own that other programs write, too.

Every run reads the definition of its job, because a pause that was acknowledged stops what has not begun. Reading
is a query; understanding what was read is remembered for as long as the text stays the same.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Final

import msgspec

from mainspring.clock import Clock
from mainspring.errors import MainspringError, plain_words
from mainspring.jobs.checks import check, check_name
from mainspring.jobs.record import BrokenJob, Definition, Job, Routing, calendar_of
from mainspring.model import Record, to_json
from mainspring.store import RecordStore, ends_scan, first_version
from mainspring.wire.checks import CheckUrl

JOBS: Final = "jobs:meta"
_REMEMBERED: Final = 20_000
_REMEMBERED_BYTES: Final = 4_096
"""What a larger record means is worked out each time: remembering many of them would take gigabytes."""


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
        self._clock = clock
        self._random = randomness
        self._read: dict[str, tuple[Record, Job | BrokenJob]] = {}
        self._check_url = check_url
        self.routing = routing

    async def get(self, name: str) -> Job | BrokenJob | None:
        record = await self._records.get_record(JOBS, name, now=self._clock.now_ms())
        return None if record is None else self.understand(record)

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

    async def delete(self, name: str, *, expect: int) -> bool:
        return await self._records.delete_record(JOBS, name, expect=expect, now=self._clock.now_ms())

    def understand(self, record: Record) -> Job | BrokenJob:
        """What a record means, whether or not it is written."""
        known = self._read.get(record.key)
        if known is not None and known[0] == record:
            return known[1]
        job = read(record, self.routing, check_url=self._check_url)
        if len(record.value) <= _REMEMBERED_BYTES:
            if len(self._read) >= _REMEMBERED:
                self._read.clear()
            self._read[record.key] = (record, job)
        else:
            self._read.pop(record.key, None)
        return job


def read(record: Record, routing: Routing, *, check_url: CheckUrl) -> Job | BrokenJob:
    """What a record of the registry means."""
    name, seal = record.key, blake2b(record.value, digest_size=8).hexdigest()
    definition: Definition | None = None
    try:
        check_name(name)
        definition = msgspec.json.decode(record.value, type=Definition)
        check(name, definition, routing, check_url=check_url)
        calendar = calendar_of(name, definition.terms)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"Expected a job as JSON, got: {plain_words(str(error))}"
        return _broken(record, seal, problem, definition)
    except MainspringError as error:
        return _broken(record, seal, error.detail, definition)
    url = routing.url_of(name, definition)
    return Job(name=name, version=record.version, seal=seal, definition=definition, calendar=calendar, url=url)


def _broken(record: Record, seal: str, problem: str, definition: Definition | None) -> BrokenJob:
    # The settings may be at fault: under others the same text has another seal, and its clock is told.
    return BrokenJob(
        name=record.key, version=record.version, seal=f"{seal}-broken", problem=problem, definition=definition
    )
