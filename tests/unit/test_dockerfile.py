"""The image that the Dockerfile describes: pinned, built from what is there, and without rights it does not need."""

import fnmatch
import re
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.support.dockerfile import Instruction, image, instructions
from tests.unit.architecture.source import PACKAGES, ROOT

FILE = ROOT / "Dockerfile"
INSTRUCTIONS = instructions(FILE)
EXACT = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+-[a-z0-9.-]+")


def of(word: str) -> list[str]:
    """Return what the instructions with this word say."""
    return [instruction.text for instruction in INSTRUCTIONS if instruction.word == word]


def copied() -> set[str]:
    """Return what is copied out of the repository."""
    return {source for text in of("COPY") if "--from" not in text for source in text.split()[:-1]}


def test_its_base_is_pinned_to_an_exact_version() -> None:
    stages = {text.partition(" AS ")[2] for text in of("FROM")}
    bases = [text.partition(" AS ")[0] for text in of("FROM")]
    assert [base for base in bases if base not in stages and not EXACT.fullmatch(base)] == []


def test_its_python_is_one_that_maestro_supports() -> None:
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    version = re.match(r"python:([\d.]+)", of("FROM")[0])
    assert version is not None
    assert SpecifierSet(supported).contains(version[1])


def test_all_that_it_copies_is_there_and_all_packages_are_copied() -> None:
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    assert set(PACKAGES) <= copied()


def test_nothing_but_what_it_copies_is_sent_to_the_builder() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied()


@pytest.mark.parametrize("text", [text for text in of("RUN") if "pip" in text and " install " in text])
def test_every_package_is_checked_against_its_hash_or_is_ours(text: str) -> None:
    for command in text.split("&&"):
        if " install " in command and "pip" in command:
            assert "--require-hashes" in command or "--no-index" in command, command


def test_its_process_is_not_root_and_owns_the_data_folder_only() -> None:
    described = image(FILE)
    assert described.user == "10001:10001"
    assert described.working_directory == described.environment["MAESTRO_DATA_DIR"] == "/data"
    assert of("VOLUME") == ["/data"]


def test_its_last_stage_builds_nothing() -> None:
    last = max(position for position, instruction in enumerate(INSTRUCTIONS) if instruction.word == "FROM")
    final = INSTRUCTIONS[last:]
    assert [
        step.text for step in final if step.word == "RUN" and re.search(r"\b(pip|apt|apt-get|curl)\b", step.text)
    ] == []
    assert [step.text for step in final if step.word == "COPY"] == ["--from=build /opt/maestro /opt/maestro"]


def test_litellm_does_not_ask_the_internet() -> None:
    assert image(FILE).environment["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"


def test_continued_lines_and_comments_are_read_as_docker_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("# a comment\nFROM a:1 \\\n  # between\n  AS b\n\nrun  x \\\n    && y\n")
    assert instructions(file) == [Instruction("FROM", "a:1 AS b"), Instruction("RUN", "x && y")]


def test_the_folder_of_secrets_reaches_neither_the_builder_nor_git() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert "/deploy/secrets/" in ignored
    assert not any(fnmatch.fnmatch("deploy/secrets/key", f"{source}*") for source in copied())
