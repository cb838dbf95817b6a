"""A configuration as it is, mistakes included: for commands that look at one or write one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from maestro.domain.errors import ConfigurationError
from maestro.settings.environment import CONFIG_FILE
from maestro.settings.file import DEFAULT_FILE
from maestro.settings.keys import VARIABLES
from maestro.settings.loading import Draft
from maestro.settings.model import Settings


@dataclass(frozen=True)
class Survey:
    """What could be read.

    ``settings`` go without whatever is wrong and ``problems`` say what that is, a line each. ``written`` is the file as
    it stands, references unread; empty when there is none or it cannot be read.
    """

    settings: Settings
    problems: tuple[str, ...]
    file: Path | None
    written: Mapping[str, object]


def named_file(given: Path | None, environment: Mapping[str, str]) -> Path:
    """The file that ``--config`` or ``MAESTRO_CONFIG`` names, else ``maestro.json`` here; it need not exist."""
    return given or Path(environment.get(CONFIG_FILE) or DEFAULT_FILE)


def survey(file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, object]) -> Survey:
    """Read as much of the configuration as makes sense; ``file`` is None when there is none to read."""
    draft = Draft()
    unread: tuple[str, ...] = ()
    try:
        if file is not None:
            draft.add_file(file, environment)
    except (ConfigurationError, RecursionError) as error:
        deep = f"{file}: it is nested too deeply; no key needs more than four levels"
        unread = (deep if isinstance(error, RecursionError) else str(error),)
        # Variables that only the file explains must not be called unknown because nobody could read it.
        environment = {name: text for name, text in environment.items() if name in VARIABLES}
    draft.add_environment(environment)
    draft.add_overrides(overrides, environment)
    settings, problems = draft.sound_settings()
    return Survey(settings, (*unread, *problems), file, draft.written)
