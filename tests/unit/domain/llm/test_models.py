"""What is known about models, by whatever form of their name."""

import pytest

from maestro.domain.llm.models import (
    FALLBACK_WINDOW,
    ModelFacts,
    ModelTable,
    Price,
    api_name,
    list_price,
    provider_name,
    remove_provider,
)
from maestro.domain.llm.prompts import Usage


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-sonnet-4-6", 200_000),
        ("anthropic/claude-haiku-4-5-20251001", 200_000),
        ("openrouter/anthropic/claude-sonnet-4", 200_000),
        ("bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0", 200_000),
        ("vertex_ai/claude-opus-4-5@20251101", 200_000),
        ("gpt-4.1", 1_000_000),
        ("openai/gpt-4.1-mini-2025-04-14", 1_000_000),
        ("gpt-4o-mini", 128_000),
        ("o3", 200_000),
        ("o3-2025-04-16", 200_000),
        ("o4-mini", 200_000),
        ("gpt-5-mini", 272_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-5.9", FALLBACK_WINDOW),
        ("gemini/gemini-2.5-flash", 1_000_000),
        ("gemini-2.0-flash-001", 1_000_000),
        ("GPT-4o-mini", 128_000),
        ("o365-imaginary", FALLBACK_WINDOW),
        ("gpt-4", FALLBACK_WINDOW),
        ("nobody/knows-me", FALLBACK_WINDOW),
        ("", FALLBACK_WINDOW),
    ],
)
def test_windows(model: str, tokens: int) -> None:
    assert ModelTable().context_window(model) == tokens


LOOKUP = ModelTable(lookup=lambda _: ModelFacts(32_768, Price(7, 8)))
OWN = {"gpt-4o": ModelFacts(64_000, Price(1, 2)), "llama3.1": ModelFacts(window=16_384), "house": ModelFacts(4_096)}


def test_our_table_goes_before_a_second_opinion() -> None:
    assert LOOKUP.context_window("claude-sonnet-4-6") == 200_000
    assert LOOKUP.context_window("nobody/knows-me") == 32_768
    assert LOOKUP.find_price("gpt-4o-mini") == ModelTable().find_price("gpt-4o-mini")
    assert LOOKUP.find_price("nobody/knows-me") == Price(7, 8)


def test_what_a_person_says_goes_before_our_table() -> None:
    table = ModelTable(OWN, lambda _: ModelFacts(32_768, Price(7, 8)))
    assert table.context_window("openai/gpt-4o-2024-08-06") == 64_000
    assert table.context_window("o3") == 200_000
    assert table.find_price("house/house-large") == Price(7, 8)
    told = table.find_price("openrouter/openai/gpt-4o")
    assert told is not None
    assert (told.input_usd, told.output_usd) == (1, 2)
    assert told.cached_share == 0.5  # of this nobody said anything


def test_nobody_but_a_person_knows_what_ollama_serves() -> None:
    table = ModelTable(OWN, lambda _: ModelFacts(131_072, Price(7, 8)))
    assert table.context_window("ollama/llama3.1:70b") == 16_384
    assert table.context_window("ollama/mistral") == FALLBACK_WINDOW
    assert table.find_price("ollama/mistral") is None
    assert table.find_price("ollama/gpt-4o") == Price(1, 2)


@pytest.mark.parametrize(
    ("model", "prices"),
    [
        ("claude-opus-4-1-20250805", (15, 75)),
        ("anthropic/claude-opus-4-20250514", (15, 75)),
        ("claude-opus-4-5-20251101", (5, 25)),
        ("claude-opus-4-6", (5, 25)),
        ("openrouter/anthropic/claude-opus-4.5", (5, 25)),
        ("claude-sonnet-4-6", (3, 15)),
        ("openrouter/anthropic/claude-sonnet-4", (3, 15)),
        ("bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0", (1, 5)),
        ("openai/gpt-4o-mini", (0.15, 0.6)),
        ("gpt-4o-mini-2024-07-18", (0.15, 0.6)),
        ("gpt-4o-2024-08-06", (2.5, 10)),
        ("gpt-5", (1.25, 10)),
        ("o3", (2, 8)),
        ("gemini/gemini-2.0-flash-001", (0.1, 0.4)),
        ("gemini-2.5-pro", (1.25, 10)),
    ],
)
def test_list_prices(model: str, prices: tuple[float, float]) -> None:
    known = list_price(model)
    assert known is not None
    assert (known.input_usd, known.output_usd) == prices


@pytest.mark.parametrize("model", ["nobody/knows-me", "gpt-5-pro", "gpt-5.9", "o3-deep-research", "gemini-2.5-pro-tts"])
def test_an_unknown_price_is_not_free_and_not_that_of_a_relative(model: str) -> None:
    assert list_price(model) is None
    assert ModelTable().compute_cost(model, Usage(input_tokens=1)) is None


def test_cost_is_per_million_tokens() -> None:
    known = list_price("claude-sonnet-4-6")
    assert known is not None
    assert known.compute_cost(1240, 89) == pytest.approx(0.005055)


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("anthropic/claude-sonnet-4-6", 12 * 3 + 100 * 0.3 + 200 * 3.75 + 10 * 15),
        ("openai/gpt-4o", 212 * 2.5 + 100 * 1.25 + 10 * 10),
        ("gemini/gemini-2.5-flash", 212 * 0.3 + 100 * 0.03 + 10 * 2.5),
    ],
)
def test_what_the_provider_kept_is_cheaper_and_keeping_it_may_cost_more(model: str, dollars: float) -> None:
    took = Usage(input_tokens=312, output_tokens=10, cached_tokens=100, cache_write_tokens=200)
    assert ModelTable().compute_cost(model, took) == pytest.approx(dollars / 1e6)


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("anthropic/claude-opus-4-6", "anthropic", "claude-opus-4-6"),
        ("openrouter/google/gemini-2.5-pro", "openrouter", "google/gemini-2.5-pro"),
        ("claude-opus-4-6", "anthropic", "claude-opus-4-6"),
        ("gpt-4o", "openai", "gpt-4o"),
        ("o4-mini", "openai", "o4-mini"),
        ("gemini-2.5-pro", "gemini", "gemini-2.5-pro"),
        ("llama3.1", "", "llama3.1"),
        ("", "", ""),
    ],
)
def test_a_name_says_or_implies_its_provider(model: str, provider: str, name: str) -> None:
    assert provider_name(model) == provider
    assert remove_provider(model) == name


@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [
        ("openai", "openai/gpt-4o", "gpt-4o"),
        ("openai", "gpt-4o", "gpt-4o"),
        ("openai", "openai/openai/gpt-oss-20b", "openai/gpt-oss-20b"),
        ("groq", "openai/gpt-oss-120b", "openai/gpt-oss-120b"),
        ("openrouter", "openrouter/auto", "openrouter/auto"),
        ("openrouter", "openrouter/openrouter/auto", "openrouter/auto"),
        ("openrouter", "openrouter/anthropic/claude-sonnet-4", "anthropic/claude-sonnet-4"),
        ("openrouter", "anthropic/claude-sonnet-4", "anthropic/claude-sonnet-4"),
    ],
)
def test_a_provider_knows_a_model_by_a_name_of_its_own(provider: str, model: str, name: str) -> None:
    assert api_name(provider, model) == name
