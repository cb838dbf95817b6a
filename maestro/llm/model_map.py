"""Context windows from the table that ships inside litellm, read without the seconds and megabytes of importing it."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from maestro.domain.models import bare, provider_of, window

OLLAMA = "ollama"

_FILE = "model_prices_and_context_window_backup.json"


def context_window(model: str) -> int:
    """Return the tokens a prompt for this model may count on (decision 4): our table, litellm's, then 8,192.

    Ollama cuts a prompt silently at the ``num_ctx`` of the request, and the transport asks for our own table's figure.
    """
    return window(model, None if provider_of(model) == OLLAMA else known_window)


def known_window(model: str) -> int | None:
    """Return a model's context window in tokens, None when the table does not have it; for ``models.window``."""
    windows = _windows()
    name = model.lower()
    return windows.get(name) or windows.get(bare(name))


@cache
def _windows() -> Mapping[str, int]:
    """Read the windows once; a release of litellm without the table leaves us with our own."""
    spec = find_spec("litellm")
    path = Path(spec.origin).with_name(_FILE) if spec and spec.origin else Path(_FILE)
    if not path.is_file():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {
        name.lower(): entry["max_input_tokens"]
        for name, entry in entries.items()
        if isinstance(entry.get("max_input_tokens"), int)
    }
