"""The command line as people and scripts meet it: help, exit codes, one line for an error, and its end."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import COMMAND
from tests.support.forking import Ended, forked
from tests.support.job_rows import JobRows

HEAVY = ("temporalio", "fastapi", "sqlalchemy", "litellm", "uvicorn", "pydantic")
LATER = ("api.app", "fastapi", "alembic", "litellm")
"""What ``maestro up`` imports when it answers messages already, or only when it is needed."""


def installed(*arguments: str, folder: Path, environment: dict[str, str] | None = None) -> Ended:
    """Run the installed command in a folder, with its own imports."""
    ran = subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ended(ran.returncode, ran.stdout, ran.stderr)


def test_help_says_what_it_is_and_where_to_begin(tmp_path: Path) -> None:
    ran = installed("--help", folder=tmp_path)
    assert (ran.code, ran.errors) == (0, "")
    for words in ("AI agents", "Begin with `maestro up`", "maestro jobs list --status failed", "version", "--data-dir"):
        assert words in ran.output


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom maestro.cli.main import run\ncode = run(['--help'])\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\nsys.exit(str(heavy) if heavy else code)"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_start_imports_neither_the_dashboard_nor_what_changes_tables(tmp_path: Path) -> None:
    script = f"import sys, maestro.cli.processes\nsys.exit(str([name for name in {LATER!r} if name in sys.modules]))"
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stderr == "[]\n"


@pytest.mark.parametrize("arguments", [("--version",), ("version",)])
def test_the_version_is_known(arguments: tuple[str, ...], tmp_path: Path) -> None:
    ran = installed(*arguments, folder=tmp_path)
    assert ran.code == 0
    assert ran.output.startswith("maestro 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor",),
        ("init",),
        ("up",),
        ("jobs",),
        ("jobs", "list"),
        ("jobs", "show"),
        ("jobs", "replay"),
        ("jobs", "cancel"),
    ],
)
def test_every_command_explains_itself(arguments: tuple[str, ...], tmp_path: Path) -> None:
    ran = forked(*arguments, "--help", folder=tmp_path)
    assert (ran.code, ran.errors) == (0, "")
    assert f"Usage: maestro {' '.join(arguments)}" in ran.output


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "Usage"),
        (("jobs",), "Usage"),
        (("nope",), "No such command"),
        (("job",), "Did you mean 'jobs'"),
        (("jobs", "nope"), "No such command"),
        (("up", "--nope"), "No such option"),
        (("up", "--port", "x"), "--port"),
        (("up", "--port", "0"), "--port"),
        (("jobs", "list", "--status", "gone"), "--status"),
        (("jobs", "list", "--limit", "0"), "--limit"),
        (("jobs", "list", "--cursor", "x"), "--cursor"),
        (("jobs", "replay", "x", "--mode", "twice"), "--mode"),
        (("jobs", "show"), "ID"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_wrong(arguments: tuple[str, ...], word: str, tmp_path: Path) -> None:
    ran = forked(*arguments, folder=tmp_path)
    assert ran.code == 2
    assert word in ran.errors + ran.output
    assert "Traceback" not in ran.errors


@pytest.mark.parametrize(
    ("arguments", "environment", "word"),
    [
        (("up", "--config", "gone.json"), {}, "gone.json"),
        (("--config", "gone.json", "up"), {}, "gone.json"),
        (("jobs", "list"), {}, "maestro up"),
        (("jobs", "list", "--data-dir", "elsewhere"), {}, "elsewhere"),
        (("--data-dir", "elsewhere", "jobs", "show", "x"), {}, "elsewhere"),
        (("up",), {"MAESTRO_WEBUI_PROT": "1"}, "did you mean MAESTRO_WEBUI_PORT?"),
        (("up",), {"MAESTRO_WEBUI_HOST": "0.0.0.0"}, "webui.password"),
    ],
)
def test_a_failure_exits_with_1_and_one_line(
    arguments: tuple[str, ...], environment: dict[str, str], word: str, tmp_path: Path
) -> None:
    ran = forked(*arguments, folder=tmp_path, environment=environment)
    assert (ran.code, ran.output) == (1, "")
    assert ran.errors.startswith("maestro: ")
    assert ran.errors.count("\n") == 1
    assert word in ran.errors


def test_the_installed_command_ends_with_the_same_codes(tmp_path: Path) -> None:
    assert installed("nope", folder=tmp_path).code == 2
    failed = installed("jobs", "list", folder=tmp_path)
    assert (failed.code, failed.errors.count("\n")) == (1, 1)


def test_debug_shows_the_traceback_before_or_after_the_command(tmp_path: Path) -> None:
    for arguments in (("--debug", "jobs", "list"), ("jobs", "list", "--debug")):
        ran = forked(*arguments, folder=tmp_path)
        assert ran.code == 1
        assert "Traceback" in ran.errors
        assert ran.errors.splitlines()[-1].startswith("maestro: ")


def test_an_unexpected_error_is_one_line_too_and_says_how_to_see_more(tmp_path: Path) -> None:
    rows = JobRows.at(tmp_path / "data")
    rows.failed()
    rows.store.close()
    with sqlite3.connect(tmp_path / "data" / "maestro.db") as database:
        database.execute("UPDATE queue SET status = 'nonsense'")
    ran = forked("jobs", "list", folder=tmp_path)
    assert (ran.code, ran.output) == (1, "")
    assert ran.errors.startswith("maestro: unexpected ValueError: ")
    assert ran.errors.endswith("(run again with --debug for the traceback)\n")
    assert ran.errors.count("\n") == 1
    assert "Traceback" in forked("jobs", "list", "--debug", folder=tmp_path).errors


def test_what_is_not_utf_8_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    ran = forked("people", "remove", os.fsdecode(b"web:\xff"), folder=tmp_path)
    assert (ran.code, ran.output, ran.errors.count("\n"), "not UTF-8" in ran.errors) == (2, "", 1, True)
    assert not list(tmp_path.iterdir())


def test_completion_knows_the_commands(tmp_path: Path) -> None:
    def completed(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        ran = forked(folder=tmp_path, environment={"_MAESTRO_COMPLETE": "complete_bash", **words})
        return ran.output.split()

    assert completed("maestro j") == ["jobs"]
    assert completed("maestro jobs sh") == ["show"]
    # Which shell runs the tests is not the tests' to say, so the shell is named instead of looked for.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert "complete" in installed("--show-completion", "bash", folder=tmp_path, environment=named).output


def test_a_reader_who_leaves_early_gets_no_complaint(tmp_path: Path) -> None:
    line = f"{COMMAND} --help | true; {COMMAND} jobs list --help | head -n 1"
    ran = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stderr == ""
