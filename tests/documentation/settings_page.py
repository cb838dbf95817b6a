"""The page docs/configuration.md, generated from the class ``Settings``."""

import json
import re
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from maestro.domain.settings.section import Section
from maestro.settings.keys import KEYS, LEAVES, Key, limits_text
from maestro.settings.model import Settings

_INTRODUCTION = """\
Maestro runs without any configuration. To change something, write `maestro.json` (`maestro.example.json` is an
example), set an environment variable, or both: they are read once, at the start. Keys with *at once* under *changes*
(`live` in the API) can also be set while Maestro runs, with `maestro settings set KEY VALUE` or `PATCH /api/settings`:
every process uses the new value within a second. The other keys need a restart.

**Which file**: the one given with `--config`, else the one named by `MAESTRO_CONFIG`, else `maestro.json` in the folder
where Maestro is started.

**Which value counts**: one that was set while Maestro ran, then the command line, the environment, the file, the
default. One exception: `MAESTRO_WEBUI_PASSWORD` counts only when the file has no password.

**Secrets** need not be in the file: `"env:NAME"` is replaced by that environment variable, `"file:PATH"` by the
content of that file, without the end of its last line. This works for every value. Relative paths start at the folder
of the configuration file, in an environment variable at the folder where Maestro is started.

**Errors** are reported at the start, all at once, each with its key and its fix: an unknown key, an unknown `MAESTRO_*`
variable, a value of the wrong type or out of range. Not taken as settings are `MAESTRO_CONFIG`, `MAESTRO_TEST_*`,
variables that the file refers to with `env:`, and the variables by which Kubernetes describes services.

**In the environment**, every key is `MAESTRO_<SECTION>_<KEY>`, or `MAESTRO__<SECTION>__<KEY>` with two underscores.
Lists are JSON; lists of texts may also be separated by commas. Empty variables count as not set.
"""

_FOUND_KEYS = """
If `llm.accounts` is empty, the accounts are those found in the environment, tried in this order: `ANTHROPIC_API_KEY`,
`OPENAI_API_KEY`, `OPENROUTER_API_KEY`, `GEMINI_API_KEY`, `OLLAMA_BASE_URL`, each also with `_1` to `_50` behind it for
further accounts. If one cannot answer, the next one does. If there are none either, the built-in
`demo` model answers, on the web connector only.
"""


def _as_json(value: Any) -> str:
    match value:
        case SecretStr():
            value = value.get_secret_value()
        case Path():
            value = str(value)
        case tuple():
            value = [
                item.model_dump(by_alias=True, exclude_unset=True) if isinstance(item, Section) else item
                for item in value
            ]
    return f"`{json.dumps(value)}`"


def _key_description(key: Key) -> str:
    return "; ".join(filter(None, (key.field.description, limits_text(key)))).replace("|", r"\|")


def _key_row(key: Key) -> str:
    changes, default = "at once" if key.live else "restart", _as_json(key.field.default)
    return f"| `{key.path}` | {default} | `{key.variables[0]}` | {changes} | {_key_description(key)} |\n"


def _entry_table(key: Key) -> str:
    table = f"\nEach entry of `{key.path}`:\n\n| key | default | meaning |\n|---|---|---|\n"
    for path, below in KEYS.items():
        if path.startswith(f"{key.path}[]."):
            default = "needed" if below.field.default is PydanticUndefined else _as_json(below.field.default)
            table += f"| `{path.rpartition('.')[2]}` | {default} | {_key_description(below)} |\n"
    return table


def _about(name: str) -> str:
    model = Settings.model_fields[name].annotation
    return (model.__doc__ or "").strip() if isinstance(model, type) and issubclass(model, Section) else ""


def _section_row(name: str) -> str:
    field = Settings.model_fields[name]
    about = re.sub(r" \(docs/[^)]*\)", "", (_about(name) or field.description or "").partition("\n\n")[0])
    return f"| [{field.alias}](#{(field.alias or name).lower()}) | {' '.join(about.split())} |\n"


def _section_table(name: str) -> str:
    field = Settings.model_fields[name]
    keys = [key for key in LEAVES if key.names[0] == name]
    about = f"\n{text}\n" if (text := _about(name)) else ""
    head = "| key | default | environment | changes | meaning |\n|---|---|---|---|---|\n"
    rows = "".join(map(_key_row, keys))
    lists = "".join(_entry_table(key) for key in keys if key.entry is not None)
    return f"\n## {field.alias}\n{about}\n{head}{rows}{lists}" + (_FOUND_KEYS if name == "llm" else "")


def settings_page(note: str) -> str:
    """Describe every key; ``note`` says how the page is written anew."""
    rows = "".join(map(_section_row, Settings.model_fields))
    sections = f"\n| section | about |\n|---|---|\n{rows}"
    return f"# Configuration\n\n{note}\n\n{_INTRODUCTION}{sections}" + "".join(
        map(_section_table, Settings.model_fields)
    )
