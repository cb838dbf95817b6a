"""Reads the scanner's data files of words, patterns and kinds of tokens; each file is read once per process."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any


@cache
def word_tables() -> Mapping[str, Any]:
    """Read ``words.toml``: words in the names of values, look-alikes, and foreign words."""
    return _read_toml("words.toml")


@cache
def word_set(name: str) -> frozenset[str]:
    """Return the set of words with this name in ``words.toml``."""
    return frozenset(word_tables()[name].split())


@cache
def pattern_tables() -> Mapping[str, Any]:
    """Read ``patterns.toml``: patterns of tokens, of login credentials, and of addresses that contain a key."""
    return _read_toml("patterns.toml")


@cache
def token_rows() -> Sequence[Sequence[str]]:
    """Read ``tokens.txt``: the prefix, the pattern of the rest and the options of each kind of token."""
    text = Path(__file__).with_name("tokens.txt").read_text(encoding="utf-8")
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def _read_toml(name: str) -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
