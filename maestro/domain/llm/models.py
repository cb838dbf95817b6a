"""Facts about models: context windows in tokens and list prices in US dollars.

The tables are part of Maestro, because the figures of a library change with the library's releases. A model is looked
up by the longest table key with which the model's name begins. The name is used without its provider
(``openrouter/anthropic/claude-sonnet-4-6``), vendor prefix (``us.anthropic.claude-...``), date and release suffix.
"""

import math
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from maestro.domain.llm.prompts import LLMRequest, PromptMessage, ToolSpec, Usage

FALLBACK_WINDOW = 8_192
"""The context window of an unknown model, in tokens."""

OLLAMA = "ollama"
"""A provider that is free of charge, and that silently cuts a prompt at the context window in the request."""

MESSAGE_OVERHEAD = 4
"""Tokens that a provider adds to every message for the message's role and delimiters."""

IMAGE_TOKENS = 1_600
"""The most tokens of an image of ordinary size with the supported providers."""

_LEFT_OUT = "\n\n[{:,} characters of this message are left out here, because they do not fit]\n\n"

_DIGITS = string.digits.encode()
_PUNCTUATION = string.punctuation.encode()
_NOT_ASCII = bytes(range(0x80, 0x100))
_ASTRAL_LEADS = bytes(range(0xF0, 0xF8))
_DENSE_RUN = re.compile(rb"[A-Za-z0-9+/=_-]{25,}")
_DENSE = string.ascii_letters.encode() + _DIGITS + b"+/=_-"
_IF_DENSE = bytes.maketrans(_DENSE, b"x" * len(_DENSE))
_SHORTEST_DENSE = b"x" * 25


@dataclass(frozen=True, slots=True)
class Price:
    """List prices in US dollars per million tokens; the real price of an account may differ.

    Input tokens that are read from or written to the provider's cache cost the input price times ``cached_share`` or
    ``cache_write_share``.
    """

    input_usd: float
    output_usd: float
    cached_share: float = 1.0
    cache_write_share: float = 1.0

    def compute_cost(self, input_tokens: int, output_tokens: int, cached: int = 0, cache_written: int = 0) -> float:
        """Return the cost of a call in US dollars; ``cached`` and ``cache_written`` are parts of ``input_tokens``."""
        plain = input_tokens - cached - cache_written
        read = plain + cached * self.cached_share + cache_written * self.cache_write_share
        return (read * self.input_usd + output_tokens * self.output_usd) / 1_000_000


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The context window of a model in tokens and its price; None for unknown values."""

    window: int | None = None
    price: Price | None = None


_WINDOWS: Mapping[str, int] = {
    "claude": 200_000,
    "gpt-4.1": 1_000_000,
    "gpt-4o": 128_000,
    "gpt-5": 272_000,
    "gpt-5-chat": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "gemini-2.0": 1_000_000,
    "gemini-2.5": 1_000_000,
}

# For all models of Anthropic, cached tokens cost the same fractions of the input price.
_OPUS, _OPUS_4_5 = Price(15, 75, 0.1, 1.25), Price(5, 25, 0.1, 1.25)
_SONNET, _HAIKU = Price(3, 15, 0.1, 1.25), Price(1, 5, 0.1, 1.25)

# Opus became cheaper with version 4.5; a name without a version gets the higher price of older versions.
_FAMILY_PRICES: Mapping[str, Price] = {
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

# A name that is longer than its key means another model: gpt-5-pro costs twelve times as much as gpt-5.
_PRICES: Mapping[str, Price] = {
    "gpt-4.1": Price(2, 8, 0.25),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.25),
    "gpt-4.1-nano": Price(0.1, 0.4, 0.25),
    "gpt-4o": Price(2.5, 10, 0.5),
    "gpt-4o-mini": Price(0.15, 0.6, 0.5),
    "gpt-5": Price(1.25, 10, 0.1),
    "gpt-5-mini": Price(0.25, 2, 0.1),
    "gpt-5-nano": Price(0.05, 0.4, 0.1),
    "o3": Price(2, 8, 0.25),
    "o3-mini": Price(1.1, 4.4, 0.5),
    "o4-mini": Price(1.1, 4.4, 0.25),
    "gemini-2.0-flash": Price(0.1, 0.4, 0.25),
    "gemini-2.0-flash-lite": Price(0.075, 0.3, 0.25),
    "gemini-2.5-pro": Price(1.25, 10, 0.1),
    "gemini-2.5-flash": Price(0.3, 2.5, 0.1),
    "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.1),
}

_FAMILIES: Mapping[str, str] = {
    "claude": "anthropic",
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "gemini",
}

_RELEASE = re.compile(r"(-\d{4}-\d\d-\d\d|-\d{3}|-latest)?")
"""The suffixes of a model name that mark a release of the same model."""

Entry = TypeVar("Entry")


class ModelTable:
    """A table of context windows and prices: configured ones first, then built-in ones, then those of ``lookup``.

    The keys of ``configured`` are model names without a provider, or the beginnings of such names.

    See docs/decisions.md: tokens.
    """

    def __init__(
        self,
        configured: Mapping[str, ModelFacts] | None = None,
        lookup: Callable[[str], ModelFacts] = lambda _: ModelFacts(),
    ) -> None:
        self._configured = {_base_name(name): facts for name, facts in (configured or {}).items()}
        self._lookup = lookup
        self._prices: dict[str, Price | None] = {}

    def context_window(self, model: str) -> int:
        """Return the context window of a model in tokens, ``FALLBACK_WINDOW`` if it is unknown.

        The name should include the provider. For an Ollama model, ``lookup`` is not asked, because Ollama cuts a prompt
        at the window that the request names.
        """
        return self._window(model) or FALLBACK_WINDOW

    def list_unknown_windows(self, models: Iterable[str]) -> list[str]:
        """Return the given models with an unknown context window, without repeats."""
        return [model for model in dict.fromkeys(models) if not self._window(model)]

    def _window(self, model: str) -> int | None:
        window = self._configured_facts(model).window or _longest_match(model, _WINDOWS)
        if window is None and provider_name(model) != OLLAMA:
            window = self._lookup(model).window
        return window

    def find_price(self, model: str) -> Price | None:
        """Return the list price of a model, None if it is unknown; the model name should include the provider."""
        if model not in self._prices:  # Prices are cached, because each call looks up its price several times.
            # Models at Ollama are free of charge, so a listed price is the price of another provider.
            listed = None if provider_name(model) == OLLAMA else list_price(model) or self._lookup(model).price
            configured = self._configured_facts(model).price
            if configured is not None and listed is not None:
                listed = replace(listed, input_usd=configured.input_usd, output_usd=configured.output_usd)
            self._prices[model] = listed or configured
        return self._prices[model]

    def compute_cost(self, model: str, usage: Usage) -> float | None:
        """Return the cost of a model call in US dollars, None if the price is unknown."""
        rates = self.find_price(model)
        if rates is None:
            return None
        return rates.compute_cost(
            usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens
        )

    def _configured_facts(self, model: str) -> ModelFacts:
        return _longest_match(model, self._configured) or ModelFacts()


def answer_reserve(window_tokens: int) -> int:
    """Return the tokens of a window for answer and estimate errors: 20,000, or a quarter of a smaller window.

    See docs/decisions.md: prompt layers.
    """
    return min(20_000, window_tokens // 4)


def prompt_budget(window_tokens: int) -> int:
    """Return the most tokens that a prompt may have in a context window of this size."""
    return window_tokens - answer_reserve(window_tokens)


def list_price(model: str) -> Price | None:
    """Return the built-in list price of a model, None if there is none; see ``ModelTable.find_price``."""
    name = _base_name(model)
    keys = (key for key in _PRICES if name.startswith(key) and _RELEASE.fullmatch(name, len(key)))
    return _PRICES.get(next(keys, "")) or _longest_match(model, _FAMILY_PRICES)


def provider_name(model: str) -> str:
    """Return the provider that a model name contains or implies, ``""`` if there is none."""
    provider, slash, _ = model.partition("/")
    return provider.lower() if slash else _longest_match(model, _FAMILIES) or ""


def remove_provider(model: str) -> str:
    """Return a model name without its provider: ``openai/gpt-4o`` becomes ``gpt-4o``."""
    return model.partition("/")[2] or model


def api_name(provider: str, model: str) -> str:
    """Return a model's name as its provider knows it: ``openai/gpt-4o`` is ``gpt-4o`` at OpenAI.

    A name at OpenRouter begins with the model's vendor; OpenRouter's own models have OpenRouter as vendor, so
    ``openrouter/auto`` stays unchanged.
    """
    name = remove_provider(model)
    own = provider_name(model) == provider and (provider != "openrouter" or "/" in name)
    return name if own else model


def _longest_match(model: str, table: Mapping[str, Entry]) -> Entry | None:
    """Return the entry of the longest key with which the model's base name begins, None without one."""
    name = _base_name(model)
    keys = [key for key in table if _matches_key(name, key)]
    return table[max(keys, key=len)] if keys else None


def _base_name(model: str) -> str:
    """Return a model name in lower case without provider and vendor; in a Claude model's name, dots become hyphens."""
    name = model.lower().rpartition("/")[2].rpartition("anthropic.")[2]
    return name.replace(".", "-") if name.startswith("claude") else name


def _matches_key(name: str, key: str) -> bool:
    """Return whether a name begins with a key, and the key ends at a word border of the name.

    ``o3`` does not match ``o365``, and ``gpt-5`` does not match ``gpt-5.1``.
    """
    rest = name.removeprefix(key)
    return name.startswith(key) and (not rest or not key[-1].isalnum() or not (rest[0].isalnum() or rest[0] == "."))


def estimate_tokens(text: str) -> int:
    """Return the estimated tokens of a text; 0 for an empty one."""
    data = text.encode("utf-8", "surrogatepass")
    digits, punctuation = _count_bytes(data, _DIGITS), _count_bytes(data, _PUNCTUATION)
    other, astral = (0, 0) if text.isascii() else (_count_bytes(data, _NOT_ASCII), _count_bytes(data, _ASTRAL_LEADS))
    plain = len(data) - digits - punctuation - other
    dense = sum(map(len, _DENSE_RUN.findall(data))) if _SHORTEST_DENSE in data.translate(_IF_DENSE) else 0
    weight = plain / 4 + digits / 2.2 + punctuation * 0.6 + other * 0.55 + astral + dense * 0.45
    return math.ceil(weight)


def estimate_messages(messages: Iterable[PromptMessage]) -> int:
    """Return the estimated tokens of a prompt: texts, images, tool calls and the overhead of each message."""
    return sum(
        MESSAGE_OVERHEAD
        + estimate_tokens(message.content)
        + IMAGE_TOKENS * len(message.images)
        + sum(
            MESSAGE_OVERHEAD + estimate_tokens(call.name) + estimate_tokens(call.arguments)
            for call in message.tool_calls
        )
        for message in messages
    )


def estimate_input(request: LLMRequest) -> int:
    """Return the estimated input tokens of a request: its prompt and its tools."""
    return estimate_messages(request.messages) + estimate_tools(request.tools)


def estimate_tools(tools: Iterable[ToolSpec]) -> int:
    """Return the estimated tokens of the names, descriptions and parameters of tools."""
    return sum(map(_estimate_tool, tools))


@lru_cache(maxsize=1_000)
def _estimate_tool(tool: ToolSpec) -> int:
    return (
        MESSAGE_OVERHEAD
        + estimate_tokens(tool.name)
        + estimate_tokens(tool.description)
        + estimate_tokens(tool.parameters)
    )


def cut_to_tokens(text: str, limit: int) -> str:
    """Return the longest beginning of a text that has at most ``limit`` tokens; the whole text if it fits."""
    if estimate_tokens(text) <= limit:
        return text
    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (middle, too_long) if estimate_tokens(text[:middle]) <= limit else (fits, middle)
    return text[:fits]


def shorten_to_tokens(text: str, limit: int) -> tuple[str, int]:
    """Return the beginning and the end of a text, joined by a mark, and the number of characters left out between.

    The result has at most ``limit`` tokens, unless the mark alone has more.
    """
    half = max(0, limit - estimate_tokens(_LEFT_OUT.format(len(text)))) // 2
    beginning, end = cut_to_tokens(text, half), cut_to_tokens(text[::-1], half)[::-1]
    left_out = len(text) - len(beginning) - len(end)
    return f"{beginning}{_LEFT_OUT.format(left_out)}{end}", left_out


def _count_bytes(data: bytes, members: bytes) -> int:
    """Return the number of bytes of ``data`` that are in ``members``; ``translate`` is faster than a loop."""
    return len(data) - len(data.translate(None, members))
