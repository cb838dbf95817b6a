"""``maestro settings``: what is set, and what can be set while Maestro runs."""

import json
from collections.abc import Iterator
from typing import Annotated

import typer
from pydantic import JsonValue

from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.table import lines
from maestro.domain.errors import InvalidEdit
from maestro.domain.live import RUNTIME, SettingsPage, SettingView
from maestro.settings.control import StoreSettingsControl
from maestro.settings.keys import KEYS
from maestro.settings.sources import parse

COLUMNS = ("key", "value", "from", "changes")
NOTHING = "Nothing was set while Maestro ran."
ACCOUNTS = "llm.accounts"
LONGEST = 60
"""Characters of a value in the list; ``--json`` has all of it."""

HELP = """List settings, and change some of them while Maestro runs.

Keys that change live, such as limits, timeouts, budgets and the scanner, count in every process within a second, and
stay until they are unset: they beat the command line, the environment and the file. The others need a restart.
`maestro accounts list` shows the accounts at providers of models.

\b
Examples:
  maestro settings list
  maestro settings set chat.limits.maxMessageChars 8192
  maestro settings set chat.scanner.scope memory,tools,logs,outgoing
  maestro settings unset chat.limits.maxMessageChars
"""

KeyName = Annotated[str, typer.Argument(metavar="KEY", help="The key, such as chat.limits.maxMessageChars.")]
Text = Annotated[str, typer.Argument(metavar="VALUE", help="The value; lists with commas or as JSON.")]
Ours = Annotated[bool, typer.Option("--runtime", help="Only what was set while Maestro ran.")]

app = Commands(HELP)


@app.command("list")
def list_settings(
    given: Given,
    runtime: Ours = False,
) -> None:
    """List every key with its value, and say where that comes from."""
    with opened(given) as at:
        page = _without_accounts(StoreSettingsControl(at.store, at.live).page())
    if runtime:
        page = page.model_copy(update={"items": tuple(one for one in page.items if one.origin == RUNTIME)})
    write(page, _listing(page), given.as_json)


@app.command("set")
def set_key(
    given: Given,
    key: KeyName,
    value: Text,
) -> None:
    """Set a key while Maestro runs; it counts within a second."""
    _change(given, key, _read(key, value))


@app.command()
def unset(
    given: Given,
    key: KeyName,
) -> None:
    """Take back what was set; what Maestro was started with counts again."""
    _change(given, key, None)


def _change(given: Given, key: str, value: JsonValue) -> None:
    with opened(given) as at:
        page = StoreSettingsControl(at.store, at.live).change({key: value}, None, ACTOR)
    changed = next((one for one in page.items if one.key == key), None)
    said = f"{key} is {_value(changed)} now, from {changed.origin}" if changed else f"{key} is gone"
    write(_without_accounts(page), [said], given.as_json)


def _read(key: str, text: str) -> JsonValue:
    """Read what was typed as the value of the key; an unknown key is refused by its name later."""
    known = KEYS.get(key)
    if known is None:
        return text
    try:
        value: JsonValue = json.loads(json.dumps(parse(text, known.kind, known.entry is not None)))
    except ValueError as error:
        raise InvalidEdit(f"{key}: {error}") from None
    return value


def _without_accounts(page: SettingsPage) -> SettingsPage:
    """Leave out what a command does not read, because it needs no key of a provider."""
    return page.model_copy(update={"items": tuple(one for one in page.items if one.key != ACCOUNTS)})


def _listing(page: SettingsPage) -> Iterator[str]:
    if not page.items:
        yield NOTHING
        return
    yield from lines(COLUMNS, [(one.key, _value(one), one.origin, one.changes) for one in page.items])
    yield from (f"does not count: {one.problem}" for one in page.items if one.problem)


def _value(setting: SettingView) -> str:
    text = json.dumps(setting.value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
