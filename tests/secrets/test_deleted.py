"""What is deleted from the embedded database is not in its file any longer."""

from __future__ import annotations

from pathlib import Path

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.fetches.messages import CreateFetch, OutboundRequest
from mainspring.timers.messages import CreateTimer, TimerRef
from tests.support.fetch_requests import ended

SECRET = "very-secret-0123456789"
COUNT = 200


async def test_secrets_of_what_has_ended_do_not_stay_in_the_file(tmp_path: Path) -> None:
    config = Config(store=f"sqlite:///{tmp_path}/m.db", data_dir=str(tmp_path), allow_loopback=True)
    headers = {"Authorization": SECRET * 20}
    async with Instance(config) as instance:
        for number in range(COUNT):
            timer = CreateTimer(
                timer_id=f"t{number}", delay_seconds=3600.0, callback_url="http://127.0.0.1:9/", headers=headers
            )
            await instance.timers.create(timer)
        request = OutboundRequest(url="http://127.0.0.1:9/", headers=headers)
        view = await instance.fetches.create(CreateFetch(request=request))
        await ended(instance.fetches, view.req_id)
        for number in range(COUNT):
            await instance.timers.delete(TimerRef(timer_id=f"t{number}"))
    assert _found_in(tmp_path) == []


def _found_in(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("m.db*") if SECRET.encode() in path.read_bytes()]
