"""How litellm names the providers, and the addresses their calls go to."""

from collections.abc import Mapping
from dataclasses import dataclass

from maestro.llm.protocols import Account

NO_KEY = "no-key"
"""Sent where an account has no key: without one litellm would look in the environment and could send a key it finds
there to somebody else's address."""


@dataclass(frozen=True, slots=True)
class Provider:
    """What litellm calls a provider, its public address in the form litellm expects, and the path of chat requests."""

    prefix: str
    base_url: str
    path: str
    tail: str = ""
    """What people add to the address that litellm adds itself."""


# Addresses are always given: without one litellm takes whatever OPENAI_BASE_URL and its like say.
_PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider("anthropic", "https://api.anthropic.com", "/v1/messages", tail="/v1"),
    "openai": Provider("openai", "https://api.openai.com/v1", "/chat/completions"),
    "gemini": Provider("gemini", "https://generativelanguage.googleapis.com/v1beta", "/models/{model}:generateContent"),
    "openrouter": Provider("openrouter", "https://openrouter.ai/api/v1", "/chat/completions"),
    # `ollama/` flattens the conversation into one prompt; `ollama_chat/` is the chat it is.
    "ollama": Provider("ollama_chat", "http://127.0.0.1:11434", "/api/chat", tail="/v1"),
}

PROVIDERS: Mapping[str, Provider] = {provider.prefix: provider for provider in _PROVIDERS.values()}
"""The providers that Maestro names itself, by litellm's name of them."""


def model_name(account: Account) -> str:
    """Return the account's model, which goes by its provider's own name, as litellm names it."""
    known = _PROVIDERS.get(account.provider)
    prefix = known.prefix if known else account.provider
    return f"{prefix}/{account.model}"


def base_url(account: Account) -> str | None:
    """Return the address the account's calls go to; None leaves a provider we do not know to litellm."""
    known = _PROVIDERS.get(account.provider)
    own = account.base_url.rstrip("/")
    if known is None:
        return own or None
    return own.removesuffix(known.tail) if own else known.base_url


def key(account: Account) -> str:
    """Return the key to send."""
    return account.api_key.get_secret_value() or NO_KEY
