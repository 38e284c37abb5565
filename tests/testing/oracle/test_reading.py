"""A journal can be kept and read again, and shown to people."""

from __future__ import annotations

from pathlib import Path

from mainspring.testing.oracle.journal import JournalFile, read_journal, write_journal
from mainspring.testing.oracle.judge import judge
from mainspring.testing.oracle.timeline import timeline
from tests.testing.oracle.histories import at_most_once_is_unknown_after_a_kill, the_end_of_the_old_removes_the_new
from tests.testing.oracle.model import WITH_COMMITS, started


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    model = started()
    at_most_once_is_unknown_after_a_kill(model)
    model.leave()
    write_journal(tmp_path / "all", model.journal)
    assert read_journal(tmp_path / "all") == model.journal
    with JournalFile(tmp_path / "each") as file:
        for event in model.journal:
            file.write(event)
    assert read_journal(tmp_path / "each") == model.journal


def test_a_timeline_marks_the_broken_id_and_ends_with_the_rule() -> None:
    model = started()
    model.do("create", "another", due=5000, mark="one")
    the_end_of_the_old_removes_the_new(model)
    [violation] = judge(model.journal, WITH_COMMITS)
    lines = timeline(model.journal, violation).splitlines()
    [broken] = [line for line in lines if " > " in line]
    assert "i1   commit finish t v1→– D=D4 over D=D7 fence 1 attempt 1: done (succeeded)" in broken  # noqa: RUF001
    assert lines[-1].startswith("T1  t: ")
    assert not any("another" in line for line in lines)
    assert any("another" in line for line in timeline(model.journal).splitlines())


def test_a_long_timeline_is_cut_at_its_beginning() -> None:
    model = started()
    for number in range(100):
        model.do("create", f"t{number}", due=5000, mark="one")
    lines = timeline(model.journal, most=10).splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("… ")
    assert "t99" in lines[-1]
