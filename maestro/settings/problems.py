"""Describes problems of a configuration in sentences that name the key and the fix, but never show a value."""

import difflib
import re
from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from maestro.domain.errors import ConfigurationError
from maestro.settings.keys import KEYS, Location, format_location, key_at
from maestro.settings.sources import EXPECTATIONS

LATER = ("temporal.encryptionKey",)
"""Sections and keys that later releases will add (docs/adr/0004)."""

_NOT_YET = "this release of Maestro does not have it yet; leave it out until the one that does"
_OBJECT = "expected an object {{...}}"
_SENTENCES = {
    "missing": "is missing; add it",
    "bool_type": f"expected {EXPECTATIONS[bool]}",
    "int_type": f"expected {EXPECTATIONS[int]}",
    "float_type": f"expected {EXPECTATIONS[float]}",
    "finite_number": f"expected {EXPECTATIONS[float]}",
    "string_type": "expected a text in quotes",
    "path_type": "expected a text in quotes",
    "tuple_type": "expected a list [...]",
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dict_type": _OBJECT,
    "greater_than": "must be more than {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
    "literal_error": "expected {expected}",
    "too_short": "must have {min_length} or more entries",
    "too_long": "must have at most {max_length} entries",
    "string_too_short": "must have {min_length} or more characters",
    "string_too_long": "must have at most {max_length} characters",
    "value_error": "{error}",
    "json_invalid": "a text is not UTF-8, or the configuration is nested too deeply; correct it",
}


def _list_key_patterns() -> frozenset[str]:
    parts = [key.split(".") for key in KEYS]
    paths = (".".join(names[:depth]) for names in parts for depth in range(1, len(names) + 1))
    return frozenset(path.removesuffix("[]") for path in paths)


_NODES = _list_key_patterns()


def _similar_keys(location: Location) -> list[str]:
    """Return the keys that an unknown key may mean: a similar name in its section, else its name in another section."""
    *above, last = location
    parent = f"{key_at(tuple(above))}." if above else ""
    siblings = [path[len(parent) :] for path in _NODES if path.startswith(parent)]
    by_lower_case = {name.lower(): name for name in siblings if "." not in name}
    similar = difflib.get_close_matches(str(last).lower(), sorted(by_lower_case), n=1)
    if similar:
        return [format_location((*above, by_lower_case[similar[0]]))]
    return sorted(path for path in _NODES if "[]" not in path and path.rpartition(".")[2] == last)


def unknown_key_problem(location: Location) -> str:
    """Return the sentence that reports a key that does not exist."""
    if key_at(location) in LATER:
        return _NOT_YET
    similar = _similar_keys(location)
    if not similar:
        return "unknown key; docs/configuration.md lists all keys"
    return f"unknown key, did you mean {' or '.join(similar)}?"


def unknown_variable_problem(name: str, known: Iterable[str]) -> str:
    """Return the sentence that reports a ``MAESTRO_*`` variable that sets no key."""
    if any(_normalize_name(name).startswith(_normalize_name(f"MAESTRO.{key}")) for key in LATER):
        return f"{name}: {_NOT_YET}"
    nearest = difflib.get_close_matches(name, sorted(known), n=1)
    if not nearest:
        return f"{name}: unknown environment variable; unset it, docs/configuration.md lists all variables"
    return f"{name}: unknown environment variable, did you mean {nearest[0]}?"


def _normalize_name(name: str) -> str:
    """Return the same spelling for a key and its variable: ``jobs.maxToolRounds`` and ``JOBS_MAX_TOOL_ROUNDS``."""
    return "/".join([*re.sub(r"(?<=[a-z])(?=[A-Z])|[._]+", " ", name).lower().split(), ""])


def describe_problem(location: Location, sentence: str, sources: Mapping[Location, str]) -> str:
    """Return a problem as one line: the source of the value (such as the file), the key, and the fix."""
    around = (location[:depth] for depth in range(len(location), -1, -1))
    source = next((sources[section] for section in around if section in sources), None)
    return ": ".join(filter(None, (source, format_location(location), sentence)))


def translate_errors(error: ValidationError, failed: Iterable[Location], sources: Mapping[Location, str]) -> list[str]:
    """Return a sentence without values for each validation error of pydantic.

    Errors at the locations ``failed`` are omitted: the values there are unreadable, and already reported.
    """
    reported, sentences = set(failed), []
    for found in error.errors(include_url=False, include_input=False):
        location: Location = found["loc"]
        # A rule about a section concerns values of several sources, so no source is named.
        is_section = found["type"] == "value_error" and key_at(location) not in KEYS and key_at(location) in _NODES
        template = _SENTENCES.get(found["type"])
        sentence = template.format(**found.get("ctx", {})) if template else str(found["msg"])
        if found["type"] == "extra_forbidden":
            sentence = unknown_key_problem(location)
        if location not in reported:
            sentences.append(describe_problem(location, sentence, {} if is_section else sources))
    return sentences


def configuration_error(problems: list[str]) -> ConfigurationError:
    """Return the error that lists all problems; a single problem is given in one line."""
    if len(problems) == 1:
        return ConfigurationError(problems[0])
    lines = "".join(f"\n  {problem}" for problem in problems)
    return ConfigurationError(f"the configuration has {len(problems)} problems:{lines}")
