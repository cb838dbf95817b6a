"""A configuration written for a test, and what loading it says."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.errors import ConfigurationError
from maestro.settings import Loaded, load

SECRET = "sk-very-secret-0123456789"


def write(tree: object, name: str = "maestro.json") -> Path:
    """Write a configuration file in the folder of this test."""
    file = Path(name)
    file.write_text(tree if isinstance(tree, str) else json.dumps(tree), encoding="utf-8")
    return file


def loaded(
    tree: object = None, environment: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> Loaded:
    """Load what stands in a file, the environment and the command line."""
    file = None if tree is None else write(tree)
    return load(file, environment or {}, overrides or {})


def problems(
    tree: object = None, environment: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> list[str]:
    """The lines of the error, which must exist."""
    with pytest.raises(ConfigurationError) as refused:
        loaded(tree, environment, overrides)
    text = str(refused.value)
    assert SECRET not in text
    first, *others = text.splitlines()
    return [other.strip() for other in others] or [first]


def problem(*args: Any) -> str:
    """The line of an error that tells of one mistake only."""
    found = problems(*args)
    assert len(found) == 1, found
    return found[0]
