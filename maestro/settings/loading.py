"""The settings, loaded in layers: defaults, then file, then environment, then command line."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ValidationError

from maestro.domain.errors import ConfigurationError
from maestro.settings.environment import env_texts, find_file, read_file, unknown_variables
from maestro.settings.keys import KEYS, LEAVES, VARIABLES, Key, Location
from maestro.settings.model import Settings
from maestro.settings.problems import configuration_error, describe_problem, translate_errors, unknown_key_problem
from maestro.settings.sources import ENVIRONMENT, FILE, References, parse_value, referred_variables, resolve_references

ValueOrigin = Literal["default", "file", "environment", "command line"]

PASSWORD = KEYS["webui.password"]
ACCOUNTS = KEYS["llm.accounts"]
_ABSENT = object()


def remove_locations(tree: dict[str, object], locations: Iterable[Location]) -> None:
    """Remove the values at these locations; for a missing key, remove the section or list entry that lacks the key.

    If none of the locations or of the sections around them exists, the tree is emptied.
    """
    present = {place for location in locations if (place := _nearest_present(tree, location))}
    # The entries of a list are removed from its end, so that the positions of entries before them stay valid.
    order = sorted(present, key=lambda place: [(part, "") if isinstance(part, int) else (0, part) for part in place])
    for *above, last in reversed(order):
        node: Any = tree
        for part in above:
            node = node[part]
        del node[last]
    if not present:
        tree.clear()


def _nearest_present(tree: Any, location: Location) -> Location:
    """Return the location, or the nearest section or entry around it that exists in the tree."""
    for depth, part in enumerate(location):
        in_list = isinstance(tree, list) and isinstance(part, int) and part < len(tree)
        if not in_list and not (isinstance(tree, dict) and part in tree):
            return location[:depth]
        tree = tree[part]
    return location


@dataclass(frozen=True)
class Loaded:
    """The settings, the source of each key (such as ``webui.port``), and the file that was read.

    ``tree`` has all given values as nested objects, as in the file; values set while Maestro runs override it.
    """

    settings: Settings
    origins: Mapping[str, ValueOrigin]
    file: Path | None
    tree: Mapping[str, object] = field(default_factory=dict, repr=False)


def load(
    config_file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, object], *, accounts: bool = True
) -> Loaded:
    """Read the configuration; ``overrides`` maps a key to its option on the command line, or to None if not given.

    Without ``accounts``, model accounts are left out: a process that calls no model needs no keys.

    Raises ``ConfigurationError`` that names every problem with its key and its fix, but no value.
    """
    file = find_file(config_file, environment)
    draft = SettingsDraft(accounts=accounts)
    try:
        if file is not None:
            draft.add_file(file, environment)
        draft.add_environment(environment)
        draft.add_overrides(overrides, environment)
        return Loaded(draft.build_settings(), MappingProxyType(draft.origins), file, draft.tree)
    except RecursionError:
        raise ConfigurationError("the configuration is nested too deeply; no key needs more than four levels") from None


class SettingsDraft:
    """A configuration while its layers (file, environment, command line) are read, and the problems found so far."""

    def __init__(self, *, accounts: bool = True) -> None:
        self._accounts = accounts
        self.origins: dict[str, ValueOrigin] = {key.path: "default" for key in LEAVES}
        self.written: dict[str, object] = {}
        """The content of the file with unresolved references."""
        self.tree: dict[str, object] = {}
        """The layers read so far, with resolved references."""
        self._sources: dict[Location, str] = {}
        self._referred: frozenset[str] = frozenset()
        self._problems: list[str] = []
        self._failed: set[Location] = set()

    def add_file(self, file: Path, environment: Mapping[str, str]) -> None:
        """Add the values of the file; relative paths in its references start at the file's folder."""
        tree = read_file(file, self._problems)
        self.written = tree
        self._sources[()] = str(file)
        self._referred = referred_variables(tree)
        llm, needed = tree.get("llm"), tree
        if not self._accounts and isinstance(llm, dict):
            needed = {**tree, "llm": {name: value for name, value in llm.items() if name != "accounts"}}
        resolved = resolve_references(needed, (), References(environment, file.parent), self._report_problem)
        assert isinstance(resolved, dict)
        self.tree = resolved
        self.origins.update({key.path: "file" for key in LEAVES if _find_value(tree, key.location) is not _ABSENT})

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Let variables override the file, except for the dashboard's password (docs/decisions.md: route guards)."""
        references = References(environment, Path())
        self._problems += unknown_variables(environment, self._referred)
        for location, (variable, text) in env_texts(environment, self._problems).items():
            key = KEYS[".".join(map(str, location))]
            if key is ACCOUNTS and not self._accounts:
                continue
            if key is PASSWORD and _find_value(self.tree, PASSWORD.location) not in (_ABSENT, ""):
                continue
            self._sources[location] = variable
            self._set_value(
                key,
                resolve_references(self._parse_value(key, text), location, references, self._report_problem),
                "environment",
            )

    def add_overrides(self, overrides: Mapping[str, object], environment: Mapping[str, str]) -> None:
        """Let the options of the command line override all other layers."""
        references = References(environment, Path())
        for path, value in overrides.items():
            location = tuple(path.split("."))
            # None means that the option was not given on the command line.
            if path in self.origins and value is None:
                continue
            self._sources[location] = "command line"
            if path not in self.origins:
                self._report_problem(location, unknown_key_problem(location))
            else:
                plain = str(value) if isinstance(value, Path) else value
                self._set_value(
                    KEYS[path], resolve_references(plain, location, references, self._report_problem), "command line"
                )

    def build_settings(self) -> Settings:
        """Return the settings; raises ``ConfigurationError`` that lists the problems, if there are any."""
        try:
            settings = validate_settings(self.tree)
        except ValidationError as error:
            self._problems += translate_errors(error, self._failed, self._sources)
        if self._problems:
            raise configuration_error(self._problems)
        return settings

    def valid_settings(self) -> tuple[Settings, list[str]]:
        """Return the settings without the invalid values, and the problems of these values."""
        problems: list[str] = []
        while True:
            try:
                return validate_settings(self.tree), [*self._problems, *problems]
            except ValidationError as error:
                problems = problems or translate_errors(error, self._failed, self._sources)
                remove_locations(self.tree, [found["loc"] for found in error.errors(include_url=False)])

    def _report_problem(self, location: Location, sentence: str) -> None:
        self._failed.add(location)
        self._problems.append(describe_problem(location, sentence, self._sources))

    def _parse_value(self, key: Key, text: str) -> object:
        if text.startswith((ENVIRONMENT, FILE)):
            return text
        try:
            return parse_value(text, key.kind, key.entry is not None)
        except ValueError as error:
            self._report_problem(key.location, str(error))
            return None

    def _set_value(self, key: Key, value: object, origin: ValueOrigin) -> None:
        section: object = self.tree
        *above, last = key.location
        for name in above:
            # If the file's section is not an object, the value is dropped, and validation reports the section.
            section = section.setdefault(name, {}) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section[last] = value
            self.origins[key.path] = origin


def validate_settings(tree: Mapping[str, object]) -> Settings:
    """Validate a tree of values and return it as settings; raises ``ValidationError``."""
    # Strict JSON mode: "8080" and true are refused as a port, while a list still becomes a tuple.
    return Settings.model_validate_json(json.dumps(tree), strict=True, by_alias=True, by_name=False)


def _find_value(tree: object, location: Location) -> object:
    for name in location:
        if not isinstance(tree, dict) or name not in tree:
            return _ABSENT
        tree = tree[name]
    return tree


@dataclass(frozen=True)
class Survey:
    """The valid part of a configuration, and a line for each problem.

    ``written`` is the content of the file with unresolved references; empty without a readable file.
    """

    settings: Settings
    problems: tuple[str, ...]
    file: Path | None
    written: Mapping[str, object]


def survey_settings(file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, object]) -> Survey:
    """Return the valid part of the configuration and its problems; ``file`` is None without a file."""
    draft = SettingsDraft()
    unread: tuple[str, ...] = ()
    try:
        if file is not None:
            draft.add_file(file, environment)
    except (ConfigurationError, RecursionError) as error:
        deep = f"{file}: the configuration is nested too deeply; no key needs more than four levels"
        unread = (deep if isinstance(error, RecursionError) else str(error),)
        # Variables to which an unreadable file refers would be reported as unknown, so only variables of
        # settings are checked.
        environment = {name: text for name, text in environment.items() if name in VARIABLES}
    draft.add_environment(environment)
    draft.add_overrides(overrides, environment)
    settings, problems = draft.valid_settings()
    return Survey(settings, (*unread, *problems), file, draft.written)
