"""What is missing of a bot on Telegram is said before it is kept, with the fix."""

from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from connectors.base import AccountRefused, ConnectorState
from connectors.options import Instance
from connectors.platforms import platform
from connectors.telegram.platform import TelegramOptions
from tests.support.memory_context import MemoryContext
from tests.support.telegram_server import SECRET, TOKEN

HOOKED: dict[str, Any] = {"mode": "webhook", "webhook_url": "https://maestro.example/platforms/telegram/default"}


def problem(token: str = TOKEN, secret: str = SECRET, **options: Any) -> str | None:
    """Return what is said of a bot."""
    secrets = {"token": SecretStr(token), "webhookSecret": SecretStr(secret)}
    return platform("telegram").complete(Instance("default", secrets, TelegramOptions.model_validate(options)))


@pytest.mark.parametrize(
    "options", [{}, HOOKED, {**HOOKED, "webhook_url": "http://127.0.0.1/x", "base_url": "http://x"}]
)
def test_what_is_complete(options: dict[str, Any]) -> None:
    assert problem(**options) is None


@pytest.mark.parametrize(
    ("token", "secret", "options", "fix"),
    [
        ("", SECRET, {}, "ask @BotFather"),
        (TOKEN, SECRET, {"mode": "webhook"}, "webhookUrl is missing"),
        (TOKEN, SECRET, {**HOOKED, "webhook_url": "http://maestro.example/x"}, "must begin with https://"),
        (TOKEN, "", HOOKED, "webhookSecret is missing"),
        (TOKEN, "no blanks", HOOKED, "webhookSecret is missing"),
    ],
)
def test_what_is_missing_is_named_and_no_secret_shown(
    token: str, secret: str, options: dict[str, Any], fix: str
) -> None:
    said = problem(token, secret, **options)
    assert said is not None
    assert (fix in said, bool(token) and token in said) == (True, False)


@pytest.mark.parametrize("options", [{"mode": "both"}, {"pace_seconds": -1}, {"on_ambiguous": "guess"}, {"quote": "x"}])
def test_what_does_not_fit_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TelegramOptions.model_validate(options)


@pytest.mark.parametrize("token", ["a word of mine", TOKEN + " "])
async def test_what_can_be_no_token_is_told_when_it_is_read(token: str) -> None:
    """Who keeps a bot may know only where its token is."""
    assert problem("env:A_VARIABLE") is None
    context = MemoryContext()
    made = platform("telegram").connect(Instance("default", {"token": SecretStr(token)}, TelegramOptions()), context)
    with pytest.raises(AccountRefused, match="copy the token from @BotFather"):
        await made.run()
    assert [state for state, _ in context.states] == [ConnectorState.STARTING, ConnectorState.FAILED]
    assert token not in str(context.states)
