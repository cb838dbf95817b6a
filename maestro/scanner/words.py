"""The words and characters that the rules look up; the file ``words.toml`` says what each set is for."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def word_tables() -> Mapping[str, Any]:
    """Read the file, once for a process."""
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


@cache
def words_for(name: str) -> frozenset[str]:
    """Return the set of words of this name."""
    return frozenset(word_tables()[name].split())
