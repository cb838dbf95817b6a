"""Context windows and prices of models; litellm's table is read from its file, without the slow import of litellm."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maestro.domain.llm.models import ModelFacts, ModelTable, Price, bare
from maestro.domain.settings.llm import ModelSettings

_FILE = "model_prices_and_context_window_backup.json"


def model_table(configured: Iterable[ModelSettings] = ()) -> ModelTable:
    """Return the facts known about models: the settings override Maestro's table, which overrides litellm's.

    See docs/decisions.md: tokens.
    """
    return ModelTable({model.name: _facts_of(model) for model in configured}, library_facts)


def library_facts(model: str) -> ModelFacts:
    """Return litellm's facts about a model; a price of 0 in its table means unknown."""
    table = _table()
    name = model.lower()
    names = (name, bare(name), name.rpartition("/")[2])
    return next((table[known] for known in names if known in table), ModelFacts())


@cache
def _table() -> Mapping[str, ModelFacts]:
    """Read litellm's table once; empty when the installed release of litellm has none."""
    spec = find_spec("litellm")
    path = Path(spec.origin).with_name(_FILE) if spec and spec.origin else Path(_FILE)
    if not path.is_file():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {name.lower(): ModelFacts(_window(entry), _price(entry)) for name, entry in entries.items()}


def _window(entry: Mapping[str, Any]) -> int | None:
    tokens = entry.get("max_input_tokens")
    return tokens if isinstance(tokens, int) else None


def _price(entry: Mapping[str, Any]) -> Price | None:
    """Return a price per token, None for a price by another unit, such as by the second."""
    reads, writes = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if not reads or writes is None:
        return None
    cached = entry.get("cache_read_input_token_cost") or reads
    cache_writes = entry.get("cache_creation_input_token_cost") or reads
    return Price(_per_million(reads), _per_million(writes), round(cached / reads, 6), round(cache_writes / reads, 6))


def _per_million(dollars: float) -> float:
    """Return the price of a million tokens, without floating-point noise."""
    return round(dollars * 1_000_000, 6)


def _facts_of(model: ModelSettings) -> ModelFacts:
    if model.input_usd is None or model.output_usd is None:
        return ModelFacts(model.window)
    return ModelFacts(model.window, Price(model.input_usd, model.output_usd))
