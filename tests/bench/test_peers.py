"""The comparison with other libraries works, as far as they can be had here. What it measures here means nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bench.figures import Setting
from bench.peers.comparison import peers
from bench.peers.contenders import BULLMQ, ENTRIES, OURS, Entry

from tests.servers.sources import Unobtainable
from tests.support.source_tree import ROOT

PEERS = ROOT / "bench" / "peers"


@pytest.mark.slow
@pytest.mark.usefixtures("redis")
async def test_a_peer_is_compared_with_us(tmp_path: Path) -> None:
    setting = Setting(tmp_path, True, lambda _: None)
    figures = await peers(setting, [OURS, BULLMQ])
    if missing := [note for note in setting.notes if note.startswith("NOT COMPARED")]:
        pytest.skip(missing[0])
    ours = [figure for figure in figures if figure.what.startswith("Mainspring")]
    theirs = [figure for figure in figures if figure.what.startswith("BullMQ")]
    assert len(ours) == len(theirs) == 7
    assert all(figure.measured > 0 for figure in theirs)
    assert [one.limit for one in ours] == [other.measured for other in theirs]
    assert sum(figure.aim is not None for figure in ours) == 3


@pytest.mark.slow
async def test_a_peer_that_cannot_be_had_is_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def unobtainable(_: Path) -> None:
        raise Unobtainable("Expected the program node, got none")

    setting = Setting(tmp_path, True, lambda _: None)
    missing = Entry("BullMQ, Redis", "fsync always", unobtainable, BULLMQ.run)
    figures = await peers(setting, [OURS, missing])
    assert {figure.what for figure in figures} == {"Mainspring, SQLite (fsync on every commit)"}
    assert all(figure.measured >= 0 and figure.limit is None and figure.met is None for figure in figures)
    said = "NOT COMPARED: BullMQ, Redis (fsync always): Expected the program node, got none"
    assert said in setting.notes
    assert said in capsys.readouterr().err


def test_everybody_says_how_durable_it_is_and_no_two_are_called_alike() -> None:
    assert all(entry.durability for entry in ENTRIES)
    assert len({(entry.name, entry.durability) for entry in ENTRIES}) == len(ENTRIES)


def test_versions_are_exact_and_documented() -> None:
    documented = (ROOT / "docs" / "benchmarks.md").read_text()
    libraries = json.loads((PEERS / "package.json").read_text())["dependencies"]
    pinned = re.findall(r"(\w+)\S*==(\S+)", (PEERS / "requirements.txt").read_text())
    for name, version in (*libraries.items(), *pinned):
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert f"{name} {version}" in documented
