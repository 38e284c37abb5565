"""What the search cannot do it refuses, with one line and exit code 2: that is not a broken promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mainspring.testing.simulation import __main__ as command
from mainspring.testing.simulation.search import search
from mainspring.testing.simulation.services import SERVICES


def called(*arguments: object) -> Result:
    return CliRunner().invoke(command.main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    "text",
    [
        *("", "garbage", "{}", "[]", "null", '{"seed":1', "[" * 100_000, "\udcff", '{"seed":"x"}'),
        '{"seed":1,"service":"unknown"}',
        '{"seed":1,"service":"all"}',
        '{"seed":1,"world":{"instances":-1}}',
        '{"seed":1,"world":{"instances":0}}',
        '{"seed":1,"world":{"shards":0}}',
        '{"seed":1,"world":{"skews":[]}}',
        '{"seed":1,"unknown":1}',
        '{"seed":1,"world":{"unknown":1}}',
        '{"seed":1,"operations":[{"client":0,"at":0,"verb":"create","unknown":1}]}',
        '{"seed":1,"operations":[{"client":0,"at":0,"verb":"create","node":1}]}',
        '{"seed":1,"operations":[{"client":0,"at":0,"verb":"create","destination":1}]}',
        '{"seed":1,"operations":[{"client":0,"at":0,"verb":"create","policy":1}]}',
        '{"seed":1,"blows":[{"at":0,"kind":"kill","node":7}]}',
        '{"seed":1,"blows":[{"at":0,"kind":"unknown"}]}',
    ],
)
def test_a_replay_file_that_has_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    ended = called("--replay", path)
    assert ended.exit_code == 2
    assert re.fullmatch(f"Error: Expected a replay file, got {re.escape(str(path))}: .+\n", ended.output)


def test_a_plan_that_says_nothing_but_its_seed_is_run(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"seed":1}')
    assert called("--replay", path).exit_code == 0


def test_a_folder_that_cannot_be_written_is_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(command, "search")
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "kept", Path("/proc/kept")):
        ended = called("--keep", folder)
        assert ended.exit_code == 2
        assert re.fullmatch(f"Error: Expected a folder that can be written, got {folder}: .+\n", ended.output)


def test_a_folder_is_not_made_for_a_search_without_findings(tmp_path: Path) -> None:
    assert called("--seeds", 1, "--keep", tmp_path / "a" / "b").exit_code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--seeds", 0), ("--seeds", -5), ("--processes", 0), ("--processes", -1), ("--runs", -1)),
        *(("--seed", 1, "--seeds", 2), ("--seed", 1, "--from", 2), ("--seed", 1, "--processes", 2)),
        *(("--replay", __file__, "--seed", 1), ("--replay", __file__, "--service", "jobs")),
        ("--replay", __file__, "--seeds", 5),
    ],
)
def test_numbers_and_options_that_make_no_sense_are_refused(arguments: tuple[object, ...]) -> None:
    ended = called(*arguments)
    assert ended.exit_code == 2
    assert "Expected" in ended.output or "not in the range" in ended.output


def test_the_help_lists_the_exit_codes() -> None:
    told = called("--help").output
    assert all(re.search(rf"^ +{code}  ", told, re.M) for code in (0, 1, 2, 3, 130, 143))


@pytest.mark.slow
def test_a_seed_of_all_is_the_history_of_the_service_whose_turn_it_is(tmp_path: Path) -> None:
    for seed, service in enumerate(SERVICES):
        of_all = called("--service", "all", "--seed", seed, "--keep", tmp_path)
        assert f"--- seed {seed} of {service}: " in of_all.output
        assert of_all.output == called("--service", service, "--seed", seed, "--keep", tmp_path).output
        assert [found.digest in of_all.output for found in search([seed], "all")] == [True]
