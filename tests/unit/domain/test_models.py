"""What is known about models, by whatever form of their name."""

import pytest

from maestro.domain.models import FALLBACK_WINDOW, bare, price, provider_of, window
from maestro.llm.model_map import known_window


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
    assert window(model) == tokens


def test_our_table_goes_before_a_second_opinion() -> None:
    assert window("claude-sonnet-4-6", lambda _: 1) == 200_000
    assert window("nobody/knows-me", lambda _: 32_768) == 32_768
    assert window("nobody/knows-me", lambda _: None) == FALLBACK_WINDOW


def test_the_table_inside_litellm_is_a_second_opinion() -> None:
    assert window("mistral/mistral-large-latest", known_window) > 30_000
    assert window("gpt-4", known_window) == 8_192
    assert window("nobody/knows-me", known_window) == FALLBACK_WINDOW


@pytest.mark.parametrize(
    ("model", "prices"),
    [
        ("claude-opus-4-1-20250805", (15, 75)),
        ("anthropic/claude-opus-4-20250514", (15, 75)),
        ("claude-opus-4-5-20251101", (5, 25)),
        ("claude-opus-4-6", (5, 25)),
        ("claude-sonnet-4-6", (3, 15)),
        ("openrouter/anthropic/claude-sonnet-4", (3, 15)),
        ("bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0", (1, 5)),
    ],
)
def test_list_prices(model: str, prices: tuple[float, float]) -> None:
    known = price(model)
    assert known is not None
    assert (known.input_usd, known.output_usd) == prices


def test_an_unknown_price_is_not_free() -> None:
    assert price("gpt-4o-mini") is None
    assert price("nobody/knows-me") is None


def test_cost_is_per_million_tokens() -> None:
    known = price("claude-sonnet-4-6")
    assert known is not None
    assert known.cost(1240, 89) == pytest.approx(0.005055)


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
    assert provider_of(model) == provider
    assert bare(model) == name
