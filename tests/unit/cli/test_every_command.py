"""What holds for every command: ``--json``, its exit codes, one line for an error, and completion."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import pytest

from maestro.cli.main import COMMANDS, load_command, run
from tests.support.command import COMMAND
from tests.support.forking import forked

Words = tuple[str, ...]

WITHOUT_JSON = {("up",), ("worker",), ("api",), ("connect",)}
"""They run until they are stopped; what they say is for people, and their log has a format for programs."""
NEEDS_NO_CONFIGURATION = {
    ("version",): "it reads none",
    ("init",): "a file that is not there is what it writes",
    ("doctor",): "a file that is not there is one of its findings",
}
SAMPLE = "web:1"
"""Something that every argument takes."""


def leaves(words: Words, command: click.Command) -> Iterator[tuple[Words, click.Command]]:
    """Yield a command, or each of its sub-commands."""
    inner: dict[str, click.Command] = getattr(command, "commands", {})
    if not inner:
        yield words, command
    for name, below in inner.items():
        yield from leaves((*words, name), below)


EVERY = dict(leaf for name in COMMANDS for leaf in leaves((name,), load_command(name)))
CONFIGURED = [words for words in EVERY if words not in NEEDS_NO_CONFIGURATION]


def options(words: Words) -> set[str]:
    return {name for parameter in EVERY[words].params for name in parameter.opts}


def arguments(words: Words) -> list[str]:
    """Return something for each argument that must be given."""
    params = EVERY[words].params
    return [SAMPLE for parameter in params if parameter.param_type_name == "argument" and parameter.required]


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


# A loop in each test: one test for each command and promise would be 800, and most of their time their own overhead.


def test_every_command_writes_json_for_programs() -> None:
    assert {words for words in EVERY if "--json" not in options(words)} == WITHOUT_JSON


def test_every_command_takes_the_common_options() -> None:
    assert not [words for words in CONFIGURED if not {"--config", "--data-dir", "--debug"} <= options(words)]


def test_every_command_explains_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words in EVERY:
        assert run([*words, "--help"]) == 0, words
        written = capsys.readouterr()
        assert written.err == "", words
        assert written.out.startswith(f"Usage: maestro {' '.join(words)}")
        assert "--install-completion" not in written.out, words


def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in EVERY:
        assert run([*words, *arguments(words), "--no-such-option"]) == 2, words
        written = capsys.readouterr()
        assert written.out == "", words
        assert "--no-such-option" in written.err, words
        assert "Traceback" not in written.err, words


def test_a_missing_argument_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in filter(arguments, EVERY):
        assert run([*words]) == 2, words
        assert "Missing argument" in capsys.readouterr().err, words


SAMPLE_ARGUMENTS: Mapping[Words, Sequence[str]] = {
    ("backup",): ["copy.tar.gz", "--without-keys"],
    ("chat",): ["hello"],
    ("connectors", "add"): ["discord"],
    ("schedules", "add"): ["cron", "--agent", "ada", "--when", "every 1h", "--channel", "here", "--prompt", "Look."],
    ("schedules", "backfill"): ["cron-1", "--from", "2026-11-01 09:00"],
}
"""Arguments of the commands that do not take any word."""


@pytest.mark.parametrize("debug", [False, True], ids=["quiet", "debug"])
def test_a_failure_ends_with_1_and_one_line(debug: bool, capsys: pytest.CaptureFixture[str]) -> None:
    for words in CONFIGURED:
        given = ["--config", "gone.json", *(["--debug"] if debug else [])]
        assert run([*words, *SAMPLE_ARGUMENTS.get(words, arguments(words)), *given]) == 1, words
        written = capsys.readouterr()
        assert written.out == "", words
        *above, line = written.err.splitlines()
        assert line.startswith("maestro: "), words
        assert "gone.json" in line, words
        assert any("Traceback" in before for before in above) if debug else above == [], words


# Completion


def complete(line: str, folder: Path, shell: str) -> str:
    """Ask for what may follow the line, as the shell's own script does."""
    protocol = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    ran = forked(folder=folder, environment={"_MAESTRO_COMPLETE": f"complete_{shell}", **protocol[shell]})
    assert ran.errors == ""
    return ran.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "offered", "other"),
    [
        ("maestro ow", "owner", "jobs"),
        ("maestro owner ", "remove", "--json"),
        ("maestro owner r", "remove", "add"),
        ("maestro chat --ag", "--agent", "--json"),
        ("maestro --config x.json jobs l", "list", "cancel"),
        ("maestro jobs list --status fa", "failed", "pending"),
    ],
)
def test_every_shell_completes_commands_options_and_values(
    shell: str, line: str, offered: str, other: str, tmp_path: Path
) -> None:
    completed = complete(line, tmp_path, shell)
    assert offered in completed
    assert other not in completed


def test_bash_itself_completes_with_what_is_installed(tmp_path: Path) -> None:
    script = (
        "maestro --install-completion >/dev/null; source $HOME/.bash_completions/maestro.sh;"
        "COMP_WORDS=(maestro agents s); COMP_CWORD=2; _maestro_completion maestro; echo ${COMPREPLY[*]}"
    )
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("show\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str, tmp_path: Path) -> None:
    named = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ran = subprocess.run(
        [COMMAND, "--show-completion", shell],
        cwd=tmp_path,
        env=named,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0
    assert f"_MAESTRO_COMPLETE=complete_{shell}" in ran.stdout


def test_completing_a_command_imports_none_of_them(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom maestro.cli.main import run\nrun([])\n"
        "heavy = [name for name in sys.modules if name.startswith(('temporalio', 'sqlalchemy', 'maestro.bootstrap'))]\n"
        "sys.exit(str(heavy[:3]) if heavy else 0)"
    )
    words = {"_MAESTRO_COMPLETE": "complete_bash", "COMP_WORDS": "maestro j", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, ["jobs"], "")
