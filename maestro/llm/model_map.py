"""Context windows and prices of models; litellm's table is read from its file, without the slow import of litellm."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maestro.domain.llm.models import ModelFacts, ModelTable, Price, without_provider
from maestro.domain.settings.llm import ModelSettings

_FILE = "model_prices_and_context_window_backup.json"


def model_table(configured: Iterable[ModelSettings] = ()) -> ModelTable:
    """Return the facts known about models: the settings override Maestro's table, which overrides litellm's.

    See docs/decisions.md: tokens.
    """
    facts = {}
    for model in configured:
        price = None
        if model.input_usd is not None and model.output_usd is not None:
            price = Price(model.input_usd, model.output_usd)
        facts[model.name] = ModelFacts(model.window, price)
    return ModelTable(facts, library_facts)


def library_facts(model: str) -> ModelFacts:
    """Return litellm's facts about a model; a price of 0 in its table means unknown."""
    table, name = _litellm_table(), model.lower()
    keys = (name, without_provider(name), name.rpartition("/")[2])
    return next((table[key] for key in keys if key in table), ModelFacts())


@cache
def _litellm_table() -> Mapping[str, ModelFacts]:
    """Read litellm's table, once per process; empty when the installed release of litellm has none."""
    spec = find_spec("litellm")
    path = Path(spec.origin).with_name(_FILE) if spec and spec.origin else Path(_FILE)
    if not path.is_file():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {name.lower(): _entry_facts(entry) for name, entry in entries.items()}


def _entry_facts(entry: Mapping[str, Any]) -> ModelFacts:
    """Return the facts in an entry of litellm's table, without a price in another unit than tokens, such as seconds."""
    tokens, price = entry.get("max_input_tokens"), None
    reads, writes = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if reads and writes is not None:
        cached = entry.get("cache_read_input_token_cost") or reads
        cache_writes = entry.get("cache_creation_input_token_cost") or reads
        # Prices are rounded to remove floating-point noise.
        figures = (reads * 1_000_000, writes * 1_000_000, cached / reads, cache_writes / reads)
        price = Price(*(round(figure, 6) for figure in figures))
    return ModelFacts(tokens if isinstance(tokens, int) else None, price)
