"""The configuration file: which one counts, and what stands in it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from maestro.domain.errors import ConfigurationError
from maestro.settings.environment import CONFIG_FILE

DEFAULT_FILE = Path("maestro.json")


def find_file(named: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file of ``--config``, else of ``MAESTRO_CONFIG``, else ``maestro.json`` here if there is one.

    A file that was named must exist: going on without it would run with settings nobody asked for.
    """
    if named is not None:
        return _existing(named, "--config")
    if environment.get(CONFIG_FILE):
        return _existing(Path(environment[CONFIG_FILE]), CONFIG_FILE)
    # lexists: a link that leads nowhere is a mistake to report, not an absent file.
    return DEFAULT_FILE if os.path.lexists(DEFAULT_FILE) else None


def _existing(file: Path, setting: str) -> Path:
    if not os.path.lexists(file):
        raise ConfigurationError(f"{file}: there is no such file; fix {setting}, or create it with `maestro init`")
    return file


def read_file(file: Path, problems: list[str]) -> dict[str, object]:
    """The object in the file; a key that stands twice is a problem, since only one of its values would count."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        problems.extend(f"{file}: the key {name} stands twice in one object; remove one" for name in twice)
        return dict(pairs)

    try:
        tree = json.loads(_text(file), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        where = f"{file}: line {error.lineno}, column {error.colno}"
        raise ConfigurationError(f"{where}: this is not JSON ({error.msg}); correct it there") from None
    except ValueError:
        raise ConfigurationError(f"{file}: a number in it is too long; shorten it") from None
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{file}: expected an object {{...}} around all settings")
    return tree


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")  # editors on Windows may write a byte order mark
    except OSError as error:
        raise ConfigurationError(f"{file}: it cannot be read ({error.strerror}); fix the path or its rights") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: it is not a text in UTF-8; save it as UTF-8") from None
