"""What the pages mention exists: commands with their options, operations, settings, metrics, and files."""

import shlex
from collections.abc import Callable, Iterable

import pytest

from tests.documentation.blocks import Block, blocks
from tests.documentation.mentions import (
    mentioned,
    texts,
    unknown_metrics,
    unknown_operations,
    unknown_settings,
    wrong_in_block,
    wrong_in_command,
)

pytestmark = pytest.mark.xdist_group("documentation-reference")


def test_blocks_that_are_not_run_could_be() -> None:
    assert {block.place: wrong for block in blocks() if block.exempt and (wrong := list(wrong_in_block(block)))} == {}


def test_mentioned_commands_exist() -> None:
    found = {code for text in texts().values() for code in mentioned(text) if code.startswith("maestro ")}
    assert len(found) > 60
    assert {code: wrong for code in found if (wrong := wrong_in_command(shlex.split(code)))} == {}


@pytest.mark.parametrize("unknown", [unknown_operations, unknown_settings, unknown_metrics])
def test_mentions_are_in_the_reference(unknown: Callable[[str], Iterable[str]]) -> None:
    assert {page: found for page, text in texts().items() if (found := list(unknown(text)))} == {}


@pytest.mark.parametrize(
    "line",
    ["maestro jbs list", "maestro jobs lst", "maestro jobs list --stat x", "maestro up now", "maestro jobs show A B"],
)
def test_a_wrong_command_is_found(line: str) -> None:
    assert wrong_in_command(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "maestro",
        "maestro --debug jobs show ID --json",
        "maestro jobs list --status failed --debug",
        "maestro agents bind writer telegram -- -1001",
        "maestro chat what can you do",
        "maestro fsck --data-dir=/tmp/try",
    ],
)
def test_a_right_command_is_fine(line: str) -> None:
    assert wrong_in_command(line.split()) is None


@pytest.mark.parametrize(
    "text",
    [
        "A=1 maestro api --debg\n",
        "cd x && maestro jobs lst | cat\n",
        "make upp  # y\n",
        "cp deploy/no.json .\n",
        "maestro \\\n  jobs lst\n",
    ],
)
def test_a_block_that_cannot_work_is_found(text: str) -> None:
    assert list(wrong_in_block(Block("page", 1, "sh", text, exempt="it needs a cluster")))


def test_an_unknown_mention_is_found() -> None:
    text = "`GET /api/jobz`, `GET /api/jobs/{id}`, `jobs.maxAttempts`, `jobs.most`, `maestro_jobs`, `maestro_jobz{a}`"
    assert list(unknown_operations(text)) == ["GET /api/jobz"]
    assert list(unknown_settings(text)) == ["jobs.most"]
    assert list(unknown_metrics(text)) == ["maestro_jobz"]
