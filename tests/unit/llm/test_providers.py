"""What litellm is told of an account."""

import pytest
from pydantic import SecretStr

from maestro.llm.protocols import Account
from maestro.llm.translation import NO_KEY, base_url, choose_key_to_send, model_name


def account(provider: str, model: str = "m", url: str = "", secret: str = "") -> Account:
    return Account("main", provider, model, api_key=SecretStr(secret), base_url=url)


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("anthropic", "claude-haiku-4-5", "anthropic/claude-haiku-4-5"),
        ("ollama", "llama3.1", "ollama_chat/llama3.1"),
        ("openrouter", "anthropic/claude-sonnet-4", "openrouter/anthropic/claude-sonnet-4"),
        ("openrouter", "openrouter/auto", "openrouter/openrouter/auto"),
        ("openai", "openai/gpt-oss-20b", "openai/openai/gpt-oss-20b"),
        ("mistral", "mistral-small", "mistral/mistral-small"),
    ],
)
def test_the_model_carries_the_providers_name(provider: str, model: str, expected: str) -> None:
    assert model_name(account(provider, model)) == expected


@pytest.mark.parametrize(
    ("provider", "url", "expected"),
    [
        ("anthropic", "", "https://api.anthropic.com"),
        ("openai", "", "https://api.openai.com/v1"),
        ("anthropic", "http://here:1/", "http://here:1"),
        ("anthropic", "http://here:1/v1", "http://here:1"),
        ("ollama", "http://here:1/v1/", "http://here:1"),
        ("openai", "http://here:1/v1/", "http://here:1/v1"),
        ("mistral", "http://here:1/v1", "http://here:1/v1"),
        ("mistral", "", None),
    ],
)
def test_the_address_has_the_form_litellm_expects(provider: str, url: str, expected: str | None) -> None:
    assert base_url(account(provider, url=url)) == expected


def test_a_missing_key_is_never_left_to_the_environment() -> None:
    assert choose_key_to_send(account("openai")) == NO_KEY
    assert choose_key_to_send(account("openai", secret="sk-1")) == "sk-1"
