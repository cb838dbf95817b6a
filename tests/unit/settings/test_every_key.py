"""Every documented key can be set in maestro.json, and what the file says is what the settings hold."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from maestro.settings import Settings
from maestro.settings.keys import KEYS, LEAVES, Key
from tests.unit.settings.configured import loaded, problem

TEXTS: Mapping[str, object] = {
    "dataDir": "/srv/maestro",
    "keys.signing": "c2lnbmluZy1rZXktb2YtdGhpcnR5LXR3by1ieXRlcyE=",
    "keys.secrets": "c2VjcmV0cy1rZXktb2YtdGhpcnR5LXR3by1ieXRlcyE=",
    "store.url": "sqlite:////srv/maestro.db",
    "media.url": "s3://acme/media",
    "media.endpoint": "https://storage.example.org",
    "temporal.address": "temporal.example.org:7233",
    "temporal.tls": True,
    "temporal.uiUrl": "https://temporal.example.org",
    "temporal.llmQueue": "x2",
    "temporal.toolsQueue": "x3",
    "temporal.codec.keys[].key": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    "webui.viewerPassword": "x2",
    "webui.trustedProxies": ["10.0.0.5"],
    "web.allowedOrigins": ["https://app.example.org"],
    "agents[].tools": ["calculate"],
    "agents[].fallbacks": ["gpt-4o"],
    "connectors.bots[].platform": "irc",
    "connectors.bots[].options": {"server": "irc.example.org", "ports": [6697]},
    "connectors.discord.gatewayUrl": "wss://gateway.example.org",
    "connectors.telegram.webhookUrl": "https://bot.example.org",
    "connectors.whatsapp.phoneNumberId": "1234567890",
    "connectors.whatsapp.apiVersion": "v25.0",
    "tools.mcp[].command": "",
    "chat.scanner.allow": ["re:msg-[0-9]+"],
    "llm.cooldownMinutes": [2.0],
    "routing.conductorChannels": ["slack:C024BE91L"],
    "skills.folder": "/srv/skills",
    "telemetry.endpoint": "https://collector.example.org/v1/traces",
    "telemetry.traceUrl": "https://traces.example.org/{traceId}",
}
"""Values of keys that take no text like any other."""
PEOPLE = ("ids", "allowUsers", "approvers")
ADDRESSES = ("baseUrl", "publicUrl", "url", "searchUrl")


def value_of(key: Key) -> object:
    """Return a value that the key may have and that is not its default, as the file would say it."""
    name = key.path.rpartition(".")[2]
    if key.path in TEXTS:
        return TEXTS[key.path]
    if key.entry is not None:
        return entries(f"{key.path}[].")
    if key.kind is bool:
        return not key.field.default
    if key.kind in (int, float):
        return number(key)
    if key.kind is dict:
        return {"name": "value"}
    if name in PEOPLE:
        return ["discord:1"]
    if name in ADDRESSES:
        return "https://api.example.org/"
    choices = literals(key.field.annotation)
    text = next((one for one in choices if one not in (key.field.default or ())), "x1")
    return [text] if key.kind is tuple else text


def number(key: Key) -> object:
    """Return a number within the limits of a key that is not its default."""
    default = key.field.default if isinstance(key.field.default, int | float) else 2000
    most = next((rule.le for rule in key.field.metadata if hasattr(rule, "le")), default + 1)
    return default - 1 if default == most else min(default + 1, most)


def literals(annotation: Any) -> list[str]:
    """Return the words of which a value is one, wherever in the annotation they stand."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [word for inner in get_args(annotation) for word in literals(inner)]


def entry(prefix: str) -> dict[str, object]:
    """Return an entry of a list with every key it has."""
    below = {path.removeprefix(prefix): key for path, key in KEYS.items() if path.startswith(prefix)}
    return {name: value_of(key) for name, key in below.items() if "." not in name and "[]" not in name}


def entries(prefix: str) -> list[dict[str, object]]:
    """Return entries of a list that together have every key; each type of account has keys of its own."""
    whole = entry(prefix)
    if prefix != "llm.accounts[].":
        return [whole]
    over_http = {**whole, "type": "api_key", "homeDir": ""}
    command = {**whole, "name": "x2", "type": "cli", "provider": "anthropic", "apiKey": "", "baseUrl": ""}
    return [over_http, command]


def everything() -> dict[str, Any]:
    """Return a file with every key in it."""
    tree: dict[str, Any] = {}
    for key in LEAVES:
        *above, last = key.location
        section = tree
        for name in above:
            section = section.setdefault(str(name), {})
        section[str(last)] = value_of(key)
    return tree


def written(value: Any) -> Any:
    """Return a part of the settings as the file says it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple | list):
        return [written(one) for one in value]
    if isinstance(value, dict):
        return {name: written(one) for name, one in value.items()}
    if hasattr(type(value), "model_fields"):
        fields = type(value).model_fields
        return {str(field.alias): written(getattr(value, name)) for name, field in fields.items()}
    return value if isinstance(value, bool | int | float) else str(value)


def test_every_key_can_be_set_in_the_file() -> None:
    tree = everything()
    result = loaded(tree)
    assert written(result.settings) == tree
    assert set(result.origins.values()) == {"file"}
    plain = written(Settings())
    for key in KEYS.values():
        held, default = tree, plain
        for name in key.path.partition("[]")[0].split("."):
            held, default = held[name], default[name]
        assert key.field.default is PydanticUndefined or held != default, key.path


def test_an_account_may_name_its_models_in_the_file() -> None:
    account = {"name": "a", "provider": "openai", "models": ["gpt-4o", "gpt-4o-mini"]}
    (only,) = loaded({"llm": {"accounts": [account]}}).settings.llm.accounts
    assert (only.model, only.models) == ("gpt-4o-mini", ("gpt-4o", "gpt-4o-mini"))


def test_only_an_account_of_a_subscription_needs_no_provider() -> None:
    (only,) = loaded({"llm": {"accounts": [{"name": "a", "type": "cli"}]}}).settings.llm.accounts
    assert (only.provider, only.model) == ("anthropic", "claude-sonnet-4-6")
    found = problem({"llm": {"accounts": [{"name": "a"}]}})
    assert found == "maestro.json: llm.accounts[0].provider: is missing; add it"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"type": "cli", "apiKey": "k"}, "leave out provider, apiKey and baseUrl"),
        ({"type": "cli", "provider": "openai"}, "leave out provider, apiKey and baseUrl"),
        ({"provider": "openai", "homeDir": "/home/me"}, 'homeDir belongs to an account of type "cli"'),
    ],
)
def test_what_an_account_would_not_use_is_a_mistake(changes: dict[str, object], said: str) -> None:
    assert said in problem({"llm": {"accounts": [{"name": "a", **changes}]}})


@pytest.mark.parametrize("port", ["8080", 70_000])
def test_a_mistake_in_the_file_is_not_blamed_on_an_option_that_was_not_given(port: object) -> None:
    assert problem({"webui": {"port": port}}, {}, {"webui.port": None}).startswith("maestro.json: webui.port: ")
