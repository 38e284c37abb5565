"""Calls to this machine: only where a setting, or a server that only this machine reaches, allows them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.api.head_checks import hosts_on
from mainspring.client.discovery import _is_at_home
from mainspring.cluster.instance import Instance
from mainspring.config import Config, load_config
from mainspring.errors import ConfigError, InvalidInput
from mainspring.origins import FetchError, Origin, RequestSync, ResponseSync
from mainspring.processes.executor import RemoteExecutor
from mainspring.processes.startup import served
from mainspring.testing.target import TargetServer
from mainspring.transactional import TimerWriter
from tests.support.executors import executor
from tests.support.fetch_requests import asking, ended


class Asking(Origin):
    """Asks the address that it is told."""

    def ask(self, url: str) -> None:
        self.svc.proxy_fetch(RequestSync(url), self.ctn().told())

    def told(self, result: ResponseSync | FetchError) -> None: ...


async def test_the_library_form_calls_nothing_on_this_machine_unless_it_is_told_to() -> None:
    async with TargetServer() as target, Mainspring("memory://", origins=[Asking]) as ms:
        with pytest.raises(InvalidInput, match="loopback"):
            await ms.fetch(target.url)
        with pytest.raises(InvalidInput, match="loopback"):
            await ms.fetch("https://example.com/", result_url=target.url)
        with pytest.raises(InvalidInput, match="loopback"):
            await ms.timers.create("t", namespace="app", delay_seconds=0, callback_url=target.url)
        with pytest.raises(InvalidInput, match="loopback"):
            await ms.jobs.create("j", "* * * * *", url=target.url)
        with pytest.raises(InvalidInput, match="loopback"):
            await ms.origin(Asking, "one").call(Asking.ask, target.url)
        assert not target.requests
    async with TargetServer() as target, Mainspring("memory://", allow_loopback=True) as ms:
        assert (await ms.fetch(target.url)).raise_for_error().status == 200


async def test_a_name_that_leads_to_this_machine_is_refused_when_it_is_dialled() -> None:
    async with TargetServer() as target, Mainspring("memory://", allow_targets=["127.0.0.9/32"]) as ms:
        result = await ms.fetch(target.url.replace("127.0.0.1", "localhost"))
        assert result.error is not None
        assert result.error.kind == "refused"


def test_timers_in_the_transaction_of_a_program_name_nothing_on_this_machine_unless_it_is_told_to() -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(InvalidInput, match="loopback"):
        TimerWriter(namespace="shop").create(connection, "t", delay_seconds=1, callback_url="http://127.0.0.1:1/")
    with pytest.raises(ConfigError):  # the target is accepted; the tables are not there
        TimerWriter(namespace="shop", allow_loopback=True).create(
            connection, "t", delay_seconds=1, callback_url="http://127.0.0.1:1/"
        )


async def test_an_executor_calls_nothing_on_this_machine_unless_it_is_told_to(tmp_path: Path) -> None:
    config = Config(store=f"sqlite:///{tmp_path}/m.db", data_dir=str(tmp_path), port=0, drain_seconds=0.2)
    server = replace(config, allow_loopback=True)
    async with TargetServer() as target, Instance(server) as instance:
        for told, state in ((None, "failed"), (True, "succeeded")):
            async with executor(replace(config, allow_loopback=told)):
                view = await instance.fetches.create(asking(target.url, executor="far"))
                assert (await ended(instance.fetches, view.req_id)).state == state


@pytest.mark.parametrize("make", [Instance, lambda config: RemoteExecutor(config, "far")])
def test_only_a_server_goes_by_the_address_it_listens_on(make: Callable[[Config], object]) -> None:
    config = Config(store="memory://")
    assert served(config).allow_loopback is True
    assert served(replace(config, host="0.0.0.0")).allow_loopback is False
    assert served(replace(config, allow_loopback=False)).allow_loopback is False
    assert served(replace(config, host="10.0.0.1", allow_loopback=True)).allow_loopback is True
    assert make(config) is not None
    assert config.allow_loopback is None


def test_the_setting_has_one_name_in_every_source(tmp_path: Path) -> None:
    file = tmp_path / "mainspring.toml"
    file.write_text("allow_loopback = true\n")
    assert load_config(file=file, environ={}).allow_loopback is True
    assert load_config(environ={"MAINSPRING_ALLOW_LOOPBACK": "false"}, file=file).allow_loopback is False
    assert load_config({"allow_loopback": True}, environ={}).allow_loopback is True


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST", "shop.localhost"])
def test_whether_an_address_is_this_machine_has_one_answer(host: str) -> None:
    assert served(Config(host=host)).allow_loopback
    assert hosts_on(host) is not None
    is_at_home = _is_at_home(f"http://{f'[{host}]' if ':' in host else host}:8700", "10.1.2.3")
    assert is_at_home is not (".localhost" in host)  # a token is sent only where no resolver can lead elsewhere


@pytest.mark.parametrize("host", ["10.1.2.4", "example.com", "localhost.example.com", "notlocalhost"])
def test_another_machine_is_not_this_one(host: str) -> None:
    assert not served(Config(host=host)).allow_loopback
    assert hosts_on(host) is None
    assert not _is_at_home(f"http://{host}:8700", "10.1.2.3")
