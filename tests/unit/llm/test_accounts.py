"""Which account a call goes to."""

import pytest

from maestro.llm.accounts import Account, choose

CLAUDE = Account("claude", "anthropic", "claude-haiku-4-5", priority=20)
SPARE = Account("spare", "anthropic", "claude-sonnet-4-6", priority=30)
GPT = Account("gpt", "openai", "gpt-4o-mini", priority=10)
LOCAL = Account("local", "ollama", "qwen2.5-coder:7b", priority=200)
ROUTER = Account("router", "openrouter", "anthropic/claude-sonnet-4", priority=60)
ALL = (LOCAL, SPARE, CLAUDE, ROUTER, GPT)


@pytest.mark.parametrize(
    ("wanted", "account", "model"),
    [
        ("", "gpt", "gpt-4o-mini"),
        ("anthropic/claude-opus-4-6", "claude", "claude-opus-4-6"),
        ("claude-opus-4-6", "claude", "claude-opus-4-6"),
        ("gpt-4.1", "gpt", "gpt-4.1"),
        ("openrouter/google/gemini-2.5-pro", "router", "google/gemini-2.5-pro"),
        ("qwen2.5-coder:7b", "local", "qwen2.5-coder:7b"),
        ("gemini/gemini-2.5-pro", "gpt", "gpt-4o-mini"),
        ("something-unheard-of", "gpt", "gpt-4o-mini"),
    ],
)
def test_the_wanted_provider_goes_before_priority(wanted: str, account: str, model: str) -> None:
    chosen = choose(ALL, wanted)
    assert chosen is not None
    assert (chosen.name, chosen.model) == (account, model)


def test_of_equal_priorities_the_first_is_chosen() -> None:
    twin = Account("twin", "openai", "gpt-4o", priority=10)
    assert choose((GPT, twin), "") == GPT
    assert choose((twin, GPT), "") == twin


def test_nobody_is_chosen_of_nobody() -> None:
    assert choose((), "anthropic/claude-opus-4-6") is None


def test_a_key_does_not_show() -> None:
    assert "sk-" not in repr(Account("a", "openai", "m", api_key=type(GPT.api_key)("sk-1")))
