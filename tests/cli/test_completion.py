"""The shell completes commands, options and choices."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import run_alone
from tests.support.running_server import COMMAND, clean_environment


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_every_shell(shell: str) -> None:
    result = run_alone("completion", shell)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_MAINSPRING_COMPLETE={shell}_complete" in result.stdout
    if shutil.which(shell):
        Path("script").write_text(result.stdout)
        subprocess.run([shell, "-n", "script"], timeout=30, check=True)


def test_another_shell_is_refused_with_those_there_are() -> None:
    result = run_alone("completion", "tcsh")
    assert (result.exit_code, "'bash', 'zsh', 'fish'" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("mainspring", "ti"), {"timer"}),
        (("mainspring", "timer", "st"), {"stats"}),
        (("mainspring", "completion", ""), {"bash", "zsh", "fish"}),
        (("mainspring", "timer", "list", "--state", "p"), {"parked"}),
        (("mainspring", "job", "apply", "--pr"), {"--prune"}),
    ],
)
def test_the_program_knows_what_may_come_next(words: tuple[str, ...], expected: set[str]) -> None:
    asked = {
        "_MAINSPRING_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    program = COMMAND[-1].replace("main()", "main(prog_name='mainspring')")
    done = subprocess.run(
        [*COMMAND[:-1], program],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env=clean_environment() | asked,
    )
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected
    assert done.stderr == ""


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    if not shutil.which("bash"):
        pytest.skip("there is no bash")
    program = tmp_path / "mainspring"
    program.write_text(f"#!{sys.executable}\nfrom mainspring.cli import main\nmain()\n")
    program.chmod(0o755)
    script = (
        "source <(mainspring completion bash)\n"
        "COMP_WORDS=(mainspring fet) COMP_CWORD=1\n"
        "_mainspring_completion mainspring fet mainspring\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    environment = clean_environment()
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert done.stdout.strip() == "fetch"
