"""Checks an account's key with a request that costs nothing: for most providers, the list of models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import httpx

from maestro.llm.protocols import Account
from maestro.llm.translation import base_url


class KeyStatus(StrEnum):
    """The result of a key check, as far as the provider's answer shows it."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class KeyCheck:
    """The outcome of a check; ``detail`` is the error for a bad key, ``models`` are the installed models (Ollama)."""

    status: KeyStatus
    detail: str = ""
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class _KeyCheckRequest:
    path: str
    header: Callable[[str], Mapping[str, str]]
    refusals: frozenset[int] = frozenset({401, 403})


def _bearer_header(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


_REQUESTS: Mapping[str, _KeyCheckRequest] = {
    "anthropic": _KeyCheckRequest("/v1/models", lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"}),
    "openai": _KeyCheckRequest("/models", _bearer_header),
    # Gemini answers 400 to an unknown key.
    "gemini": _KeyCheckRequest("/models", lambda key: {"x-goog-api-key": key}, frozenset({400, 401, 403})),
    # OpenRouter's list of models needs no key, so the limits of the key are requested.
    "openrouter": _KeyCheckRequest("/key", _bearer_header),
    "ollama": _KeyCheckRequest("/api/tags", _bearer_header),
}


async def check_key(account: Account, seconds: float) -> KeyCheck:
    """Check a key; never raises. Only the address used for calls gets the key, and redirects are not followed."""
    request, address = _REQUESTS.get(account.provider), base_url(account)
    if request is None or address is None:
        return KeyCheck(KeyStatus.UNKNOWN, "Maestro has no free request that checks a key of this provider")
    try:
        headers = request.header(account.api_key.get_secret_value())
        async with httpx.AsyncClient(timeout=seconds) as http:
            answer = await http.get(f"{address}{request.path}", headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        # The text of an error may quote the header with the key, so only the error's class is reported.
        return KeyCheck(KeyStatus.UNREACHABLE, type(error).__name__)
    if answer.status_code in request.refusals:
        return KeyCheck(KeyStatus.REFUSED, f"HTTP {answer.status_code}")
    if not answer.is_success:
        return KeyCheck(KeyStatus.UNKNOWN, f"HTTP {answer.status_code}")
    try:
        models = tuple(str(model["name"]) for model in answer.json()["models"] if "name" in model)
    except (ValueError, KeyError, TypeError):
        models = ()  # only Ollama's answer lists its installed models
    return KeyCheck(KeyStatus.ACCEPTED, models=models)
