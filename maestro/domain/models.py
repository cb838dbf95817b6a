"""What we know about models: context windows in tokens and list prices in US dollars.

The tables are ours because a library's figures change under one's feet. A name is looked up without its provider
(``openrouter/anthropic/claude-sonnet-4-6``), vendor prefix (``us.anthropic.claude-...``), date and release suffix,
by its longest known beginning.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

FALLBACK_WINDOW = 8_192
"""Tokens; the window of a model nobody knows."""

RESERVE_TOKENS = 20_000
"""Tokens of a large window that are kept for the answer and for what an estimate may be wrong by (decision 6)."""

WindowLookup = Callable[[str], int | None]
"""A second opinion on windows: model name to tokens, None when unknown."""


@dataclass(frozen=True, slots=True)
class Price:
    """List prices in US dollars per million tokens; what an account really pays may differ."""

    input_usd: float
    output_usd: float

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return what a call costs in US dollars."""
        return (input_tokens * self.input_usd + output_tokens * self.output_usd) / 1_000_000


_WINDOWS: Mapping[str, int] = {
    "claude": 200_000,
    "gpt-4.1": 1_000_000,
    "gpt-4o": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "gemini-2.0": 1_000_000,
    "gemini-2.5": 1_000_000,
}

_OPUS, _OPUS_4_5 = Price(15, 75), Price(5, 25)
_SONNET, _HAIKU = Price(3, 15), Price(1, 5)

# Opus became cheaper with 4.5; names that do not say pay the older, higher price.
_PRICES: Mapping[str, Price] = {
    "claude-3-opus": _OPUS,
    "claude-opus": _OPUS,
    "claude-4-opus": _OPUS,
    "claude-opus-4-5": _OPUS_4_5,
    "claude-opus-4-6": _OPUS_4_5,
    "claude-opus-4-7": _OPUS_4_5,
    "claude-opus-4-8": _OPUS_4_5,
    "claude-3-5-sonnet": _SONNET,
    "claude-3-7-sonnet": _SONNET,
    "claude-4-sonnet": _SONNET,
    "claude-sonnet-4": _SONNET,
    "claude-haiku-4-5": _HAIKU,
}

_FAMILIES: Mapping[str, str] = {
    "claude": "anthropic",
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "gemini",
}

Entry = TypeVar("Entry")


def window(model: str, lookup: WindowLookup | None = None) -> int:
    """Return the context window in tokens: ours, then the lookup's, then ``FALLBACK_WINDOW`` (decision 4)."""
    known = _longest(model, _WINDOWS)
    if known is None and lookup is not None:
        known = lookup(model)
    return known or FALLBACK_WINDOW


def reserve(window_tokens: int) -> int:
    """Return the tokens of a window that no prompt may use: 20,000, or a quarter of a small window (decision 6)."""
    return min(RESERVE_TOKENS, window_tokens // 4)


def prompt_budget(window_tokens: int) -> int:
    """Return the tokens that a prompt may take."""
    return window_tokens - reserve(window_tokens)


def price(model: str) -> Price | None:
    """Return the list price of a model, None when we do not know it."""
    return _longest(model, _PRICES)


def provider_of(model: str) -> str:
    """Return the provider a model name says or implies, ``""`` when it does neither."""
    provider, slash, _ = model.partition("/")
    return provider.lower() if slash else _longest(model, _FAMILIES) or ""


def bare(model: str) -> str:
    """Return a model name without its provider: ``openai/gpt-4o`` is ``gpt-4o``."""
    return model.partition("/")[2] or model


def _longest(model: str, table: Mapping[str, Entry]) -> Entry | None:
    """Find the entry whose key is the longest beginning of the model's own name."""
    name = model.lower().rpartition("/")[2]
    name = name.rpartition("anthropic.")[2]
    known = [key for key in table if _begins(name, key)]
    return table[max(known, key=len)] if known else None


def _begins(name: str, key: str) -> bool:
    """Tell whether a name begins with a key and the key ends at a border: ``o3`` is not ``o365``."""
    rest = name.removeprefix(key)
    return name.startswith(key) and (not rest or not key[-1].isalnum() or not rest[0].isalnum())
