"""A connection that notices what time it is at the server, if that is an emulator: distances are shown from there."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from mainspring.cli.instants import go_by
from mainspring.client.transport import SyncTransport
from mainspring.delivery.call import Call, Reply
from mainspring.emulator.outgoing import CLOCK_HEADER


class TimedTransport(SyncTransport):
    def send(self, call: Call) -> Reply:
        reply = super().send(call)
        with suppress(ValueError):  # from something else that uses the name
            if told := reply.headers.get(CLOCK_HEADER):
                go_by(datetime.fromisoformat(told))
        return reply
