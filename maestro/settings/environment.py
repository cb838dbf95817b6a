"""The sources of settings: ``MAESTRO_*`` variables, keys of providers, and the configuration file."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from maestro.domain.errors import ConfigurationError
from maestro.domain.settings.entries import AccountSettings
from maestro.settings.keys import LEAVES, PREFIX, VARIABLES, Location
from maestro.settings.problems import configuration_error, translate_errors, unknown_variable_problem

CONFIG_FILE = f"{PREFIX}_CONFIG"

# Kubernetes sets variables such as MAESTRO_SERVICE_HOST for a service called maestro; those are no settings.
_SERVICE_NAME = re.compile(rf"{PREFIX}(_\w+)?_(SERVICE_HOST|SERVICE_PORT\w*|PORT_\d+_(TCP|UDP|SCTP)\w*)")

# For each provider: the usual environment variable, the account's field that it sets, and the account's priority.
_PROVIDERS = (
    ("ANTHROPIC_API_KEY", "anthropic", "apiKey", 20),
    ("OPENAI_API_KEY", "openai", "apiKey", 50),
    ("OPENROUTER_API_KEY", "openrouter", "apiKey", 60),
    ("GEMINI_API_KEY", "gemini", "apiKey", 70),
    ("OLLAMA_BASE_URL", "ollama", "baseUrl", 200),
)

PROVIDER_VARIABLES = {provider: variable for variable, provider, _, _ in _PROVIDERS}
"""The environment variable with the key or the address of each provider."""

MORE_ACCOUNTS = 50
"""The highest number in a variable for a further account of a provider, such as ``OPENAI_API_KEY_2``."""


DEFAULT_FILE = Path("maestro.json")


def read_environment() -> Mapping[str, str]:
    """Return the environment of this process; no other code in Maestro reads it."""
    return dict(os.environ)


def found_accounts(environment: Mapping[str, str]) -> tuple[AccountSettings, ...]:
    """Return an account for each provider variable that is set, by priority; used if no account is configured.

    ``OPENAI_API_KEY`` is the account ``openai``, ``OPENAI_API_KEY_2`` is ``openai-2``; numbers may be skipped.

    Raises ``ConfigurationError`` for a variable with an invalid value.
    """
    return tuple(
        _build_account(f"{variable}{tail}", {"name": f"{provider}{tail.replace('_', '-')}", field: text, **shared})
        for variable, provider, field, priority in _PROVIDERS
        for shared in ({"provider": provider, "priority": priority},)
        for tail in ("", *(f"_{number}" for number in range(1, MORE_ACCOUNTS + 1)))
        if (text := environment.get(f"{variable}{tail}", "").strip())
    )


def account_variable(account: AccountSettings) -> str:
    """Return the environment variable in which an account was found."""
    return PROVIDER_VARIABLES[account.provider] + account.name.removeprefix(account.provider).replace("-", "_")


def _build_account(variable: str, fields: dict[str, object]) -> AccountSettings:
    url = fields.get("baseUrl")
    if isinstance(url, str) and "://" not in url:
        fields["baseUrl"] = f"http://{url}"  # Ollama's variable may be host:port without a scheme
    try:
        return AccountSettings.model_validate_json(json.dumps(fields), by_alias=True, by_name=False)
    except ValidationError as error:
        raise configuration_error(translate_errors(error, (), {(): variable})) from None


def _maestro_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ``MAESTRO_*`` variables for settings; empty ones do not count, because container tools set them."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(f"{PREFIX}_")
        and value
        and name != CONFIG_FILE
        and not name.startswith(f"{PREFIX}_TEST_")
        and _SERVICE_NAME.fullmatch(name) is None
        and not (name.endswith("_PORT") and re.fullmatch(r"(tcp|udp|sctp)://\S*", value))
    }


def unknown_variables(environment: Mapping[str, str], referred: frozenset[str]) -> list[str]:
    """Return a problem for each ``MAESTRO_*`` variable that sets no key and that no key refers to."""
    known = {*VARIABLES, CONFIG_FILE}
    unknown = sorted(set(_maestro_variables(environment)) - known - referred)
    return [unknown_variable_problem(name, known) for name in unknown]


def env_texts(environment: Mapping[str, str], problems: list[str]) -> dict[Location, tuple[str, str]]:
    """Return the variable and its text for each key that the environment sets; add conflicts to ``problems``."""
    variables = _maestro_variables(environment)
    by_location: dict[Location, tuple[str, str]] = {}
    for key in LEAVES:
        names = [name for name in key.variables if name in variables]
        if len(names) > 1:
            problems.append(f"{' and '.join(names)} both set {key.path}; unset one")
        if names:
            by_location[key.location] = (names[0], variables[names[0]])
    return by_location


def find_file(named: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the configuration file: ``--config``, else ``MAESTRO_CONFIG``, else ``./maestro.json`` if it exists.

    A named file must exist: without it, Maestro would run with other settings than the operator expects.
    """
    if named is not None:
        return _require_existing(named, "--config")
    if environment.get(CONFIG_FILE):
        return _require_existing(Path(environment[CONFIG_FILE]), CONFIG_FILE)
    # ``lexists`` also finds a broken link, which is a mistake to report and not a missing file.
    return DEFAULT_FILE if os.path.lexists(DEFAULT_FILE) else None


def _require_existing(file: Path, setting: str) -> Path:
    if not os.path.lexists(file):
        raise ConfigurationError(f"{file} does not exist; fix {setting}, or create it with `maestro init`")
    return file


def read_file(file: Path, problems: list[str]) -> dict[str, object]:
    """Return the object in the file; a repeated key is added to ``problems``."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        problems.extend(f"{file}: the key {name} occurs twice in one object; remove one" for name in repeated)
        return dict(pairs)

    try:
        tree = json.loads(_read_text(file), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        where = f"{file}: line {error.lineno}, column {error.colno}"
        raise ConfigurationError(f"{where}: the file is not JSON ({error.msg}); correct it there") from None
    except ValueError:
        raise ConfigurationError(f"{file}: a number is too long; shorten it") from None
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{file}: expected an object {{...}} around all settings")
    return tree


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")  # Editors on Windows may write a byte order mark.
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read ({error.strerror}); fix the path or its rights") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not a text in UTF-8; save it as UTF-8") from None
