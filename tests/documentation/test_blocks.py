"""The blocks of the pages are what they say: each has a language, data can be read, and settings are settings."""

import json
import re
import tomllib
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from maestro.settings import load
from maestro.settings.keys import KEYS
from tests.documentation.blocks import LANGUAGES, Block, blocks, blocks_of

BLOCKS = blocks()
SECTIONS = frozenset(path.partition(".")[0] for path in KEYS)
REFERENCE = re.compile(r'"(?:env|file):([^"]*)"')


def read_json(text: str) -> object:
    """Read JSON, or a section of it as it stands in a file of settings."""
    return json.loads(text if text.lstrip().startswith(("{", "[")) else f"{{{text}}}")


READERS: Mapping[str, Callable[[str], object]] = {
    "json": read_json,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "toml": tomllib.loads,
    "python": lambda text: compile(text, "page", "exec"),
}
DATA = [block for block in BLOCKS if block.language in READERS]


def referred_to(reference: re.Match[str]) -> str:
    """Return something that fits where a page refers to a secret: an address, or 32 bytes in base64."""
    if reference[1].lower().endswith(("_url", ".url")):
        return '"postgresql://maestro@db.example.org/maestro"'
    return json.dumps(b64encode(sha256(reference[1].encode()).digest()).decode())


def settings_in(block: Block) -> object:
    """Return the settings of a block, with a value in place of each reference; None if the block has others."""
    found = read_json(REFERENCE.sub(referred_to, block.text)) if block.language == "json" else None
    return found if isinstance(found, dict) and found and found.keys() <= SECTIONS else None


CONFIGURATIONS = {block.place: found for block in BLOCKS if (found := settings_in(block)) is not None}


def test_every_block_names_a_language() -> None:
    assert [f"{block.place}: {block.language!r}" for block in BLOCKS if block.language not in LANGUAGES] == []


def test_commands_are_run_or_name_a_reason() -> None:
    commands = [block for block in BLOCKS if block.language == "sh"]
    excepted = [block for block in BLOCKS if block.exempt]
    assert all(len(block.exempt) > 15 and block.language == "sh" for block in excepted)
    assert len(excepted) * 2 < len(commands)


@pytest.mark.parametrize("block", DATA, ids=lambda block: block.place)
def test_a_block_of_data_can_be_read(block: Block) -> None:
    READERS[block.language](block.text)


@pytest.mark.parametrize("place", CONFIGURATIONS)
def test_settings_of_a_page_are_settings(place: str, tmp_path: Path) -> None:
    file = tmp_path / "maestro.json"
    file.write_text(json.dumps(CONFIGURATIONS[place]))
    load(file, {"MAESTRO_WEBUI_PASSWORD": "of an exposed port"}, {})


def test_there_are_settings_to_try() -> None:
    assert len(CONFIGURATIONS) > 20


@pytest.mark.parametrize(
    ("page", "block"),
    [
        ("```sh\nls\n```\n", Block("p", 1, "sh", "ls\n")),
        ("# P\n<!-- given: ID=$FAILED -->\n```sh\nls\n```\n", Block("p", 3, "sh", "ls\n", "ID=$FAILED")),
        ("<!-- not run: no\n  cluster -->\n   ```sh\n   ls\n   ```\n", Block("p", 3, "sh", "ls\n", "", "no cluster")),
    ],
)
def test_a_block_is_read_with_its_notes(page: str, block: Block) -> None:
    assert list(blocks_of("p", page)) == [block]
