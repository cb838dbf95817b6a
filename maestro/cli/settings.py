"""List settings, and change some of them while Maestro runs.

A live key, such as a limit, a timeout or a budget, takes effect in every process within a second. Until it is unset,
its value overrides the command line, the environment and the file. All other keys need a restart.
`maestro accounts list` shows the accounts at model providers.

\b
Examples:
  maestro settings list
  maestro settings set chat.limits.maxMessageChars 8192
  maestro settings set chat.scanner.scope memory,tools,logs,outgoing
  maestro settings unset chat.limits.maxMessageChars
"""

import json
from typing import Annotated

from pydantic import JsonValue

from maestro.cli.framework.operations import ACTOR, OperationCommands
from maestro.cli.framework.output import Columns, Result, list_lines
from maestro.domain.errors import InvalidEdit
from maestro.domain.settings.live import RUNTIME, SettingsPage, SettingView
from maestro.operations.settings import SettingsOperations
from maestro.settings.control import EffectiveSettings
from maestro.settings.keys import KEYS
from maestro.settings.sources import parse_value


def _value_text(setting: SettingView) -> str:
    """Return the value of a setting as JSON, cut after 60 characters; ``--json`` shows all of it."""
    text = json.dumps(setting.value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."


COLUMNS = Columns("key value from=origin changes", {"value": _value_text})

KeyName = Annotated[str, "KEY: The key, such as chat.limits.maxMessageChars."]

app = OperationCommands(__doc__, lambda at: SettingsOperations(at.store, EffectiveSettings(at.live)))


@app.operation("list")
def list_settings(
    settings: SettingsOperations, runtime: Annotated[bool, "--runtime: Only keys set while Maestro ran."] = False
) -> Result:
    """List every key with its value and the value's origin."""
    page = _without_accounts(settings.page(), runtime=runtime)
    problems = [f"does not count: {view.problem}" for view in page.items if view.problem]
    return page, [*list_lines(page, COLUMNS, "Nothing was set while Maestro ran."), *problems]


@app.operation("set")
def set_key(
    settings: SettingsOperations, key: KeyName, value: Annotated[str, "VALUE: The value; lists with commas or as JSON."]
) -> Result:
    """Set a key while Maestro runs; the value takes effect within a second."""
    known = KEYS.get(key)  # for an unknown key, `change` raises the error
    try:
        parsed = json.loads(json.dumps(parse_value(value, known.kind, known.entry is not None))) if known else value
    except ValueError as error:
        raise InvalidEdit(f"{key}: {error}") from None
    return _change_key(settings, key, parsed)


@app.operation()
def unset(settings: SettingsOperations, key: KeyName) -> Result:
    """Remove the value set while Maestro ran; the value with which Maestro started holds again."""
    return _change_key(settings, key, None)


def _change_key(settings: SettingsOperations, key: str, value: JsonValue) -> Result:
    page = settings.change({key: value}, None, ACTOR)
    changed = next((view for view in page.items if view.key == key), None)
    line = f"{key} is {_value_text(changed)} now, from {changed.origin}" if changed else f"{key} is gone"
    return _without_accounts(page), line


def _without_accounts(page: SettingsPage, *, runtime: bool = False) -> SettingsPage:
    """Return the page without ``llm.accounts``, which commands do not load; ``runtime``: only keys set at run time."""
    items = (view for view in page.items if view.key != "llm.accounts" and (not runtime or view.origin == RUNTIME))
    return page.model_copy(update={"items": tuple(items)})
