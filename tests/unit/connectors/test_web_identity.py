"""Resume tokens: who they stand for, and for how long."""

import base64
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from connectors.base import Identity, IdentityRole
from connectors.web.config import WebConfig
from connectors.web.frames import WebCredentials
from connectors.web.identity import PURPOSE, ResumeTokens, WebAuthenticator, WebUser
from maestro.domain.errors import ConfigurationError, Unauthorized
from maestro.domain.network import TooManyAttempts
from maestro.domain.settings.section import is_loopback
from tests.support.memory_context import MemoryContext

KEY = b"0123456789abcdef"
GUEST = WebUser(Identity("web-1", "Ada ü 🙂", IdentityRole.USER))
OWNER = WebUser(Identity("operator", "operator", IdentityRole.OWNER), dashboard=True)
CALLER = "203.0.113.9"


class Clock:
    """A time of day that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def tokens_of(clock: Clock, **settings: Any) -> ResumeTokens:
    """Return the tokens of a connector with these settings."""
    return ResumeTokens(WebConfig(**{"signing_key": KEY, **settings}), clock)


def test_a_token_stands_for_who_it_was_issued_to() -> None:
    tokens = tokens_of(Clock())
    assert tokens.read_user(tokens.issue_token(GUEST)) == GUEST


def test_a_token_expires_after_thirty_days() -> None:
    clock = Clock()
    tokens = tokens_of(clock)
    token = tokens.issue_token(GUEST)
    clock.now += timedelta(days=30)
    assert tokens.read_user(token) == GUEST
    clock.now += timedelta(seconds=1)
    with pytest.raises(Unauthorized, match="expired"):
        tokens.read_user(token)


def test_a_token_of_another_key_is_refused() -> None:
    token = tokens_of(Clock(), signing_key=b"another key of 16").issue_token(GUEST)
    with pytest.raises(Unauthorized, match="not valid"):
        tokens_of(Clock()).read_user(token)


def test_a_users_token_is_renewed_by_coming_back() -> None:
    clock = Clock()
    tokens = tokens_of(clock)
    token = tokens.issue_token(GUEST)
    for _ in range(3):
        clock.now += timedelta(days=20)
        token = tokens.issue_token(tokens.read_user(token))
    assert tokens.read_user(token) == GUEST


def test_an_owners_token_ends_with_the_hours_of_a_login_however_often_it_is_renewed() -> None:
    clock = Clock()
    tokens = tokens_of(clock, owner_hours=2)
    token = tokens.issue_token(OWNER)
    for _ in range(2):
        clock.now += timedelta(hours=1)
        again = tokens.read_user(token)
        assert (again.identity, again.dashboard) == (OWNER.identity, True)
        token = tokens.issue_token(again)
    clock.now += timedelta(seconds=1)
    with pytest.raises(Unauthorized, match="expired"):
        tokens.read_user(token)


@pytest.mark.parametrize("changed", [{"password_digest": b"of another password"}, {"api_key": "a key"}])
def test_another_password_or_key_ends_an_owners_token_and_no_users(changed: dict[str, Any]) -> None:
    before, after = tokens_of(Clock()), tokens_of(Clock(), **changed)
    with pytest.raises(Unauthorized, match="not valid"):
        after.read_user(before.issue_token(OWNER))
    assert after.read_user(before.issue_token(GUEST)) == GUEST


def test_a_key_of_users_signs_no_owner() -> None:
    tokens = tokens_of(Clock())
    body = tokens.issue_token(OWNER).partition(".")[0]
    signature = hmac.digest(KEY, PURPOSE + body.encode(), "sha256")
    with pytest.raises(Unauthorized, match="not valid"):
        tokens.read_user(f"{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}")


async def test_after_five_wrong_keys_the_right_one_still_gets_in() -> None:
    clock = Clock()
    config = WebConfig(signing_key=KEY, api_key="k")
    tokens = ResumeTokens(config, clock)
    doorman = WebAuthenticator(config, MemoryContext(tickets={"t": OWNER.identity}), tokens, clock)
    for _ in range(5):
        with pytest.raises(Unauthorized):
            await doorman.authenticate_user(WebCredentials(api_key="wrong"), CALLER)
    with pytest.raises(TooManyAttempts) as locked:
        await doorman.authenticate_user(WebCredentials(api_key="wrong"), CALLER)
    assert locked.value.retry_after == timedelta(seconds=10)
    assert (await doorman.authenticate_user(WebCredentials(api_key="k"), CALLER)).identity.role is IdentityRole.USER
    assert (
        await doorman.authenticate_user(WebCredentials(api_key="k"), "203.0.113.10")
    ).identity.role is IdentityRole.USER
    assert await doorman.authenticate_user(WebCredentials(resume_token=tokens.issue_token(GUEST)), CALLER) == GUEST
    assert (await doorman.authenticate_user(WebCredentials(ticket="t"), CALLER)).dashboard
    clock.now += timedelta(seconds=10)
    with pytest.raises(Unauthorized):
        await doorman.authenticate_user(WebCredentials(api_key="wrong"), CALLER)


async def test_an_expired_token_is_no_guess() -> None:
    clock = Clock()
    config = WebConfig(signing_key=KEY, api_key="k")
    tokens = ResumeTokens(config, clock)
    doorman = WebAuthenticator(config, MemoryContext(), tokens, clock)
    token = tokens.issue_token(GUEST)
    clock.now += timedelta(days=31)
    for _ in range(9):
        with pytest.raises(Unauthorized, match="expired"):
            await doorman.authenticate_user(doorman.read_bearer(token), CALLER)


async def test_a_display_name_changes_the_name_and_nothing_else() -> None:
    config = WebConfig(signing_key=KEY, api_key="k")
    tokens = ResumeTokens(config, Clock())
    doorman = WebAuthenticator(config, MemoryContext(), tokens, Clock())
    again = await doorman.authenticate_user(
        WebCredentials(resume_token=tokens.issue_token(GUEST), user_name="local"), CALLER
    )
    assert again == WebUser(Identity("web-1", "local", IdentityRole.USER))


async def test_a_client_with_the_key_may_be_a_bot_and_then_stays_one() -> None:
    config = WebConfig(signing_key=KEY, api_key="k")
    tokens = ResumeTokens(config, Clock())
    doorman = WebAuthenticator(config, MemoryContext(tickets={"t": OWNER.identity}), tokens, Clock())
    assert not (await doorman.authenticate_user(WebCredentials(api_key="k"), CALLER)).bot
    robot = await doorman.authenticate_user(WebCredentials(api_key="k", bot=True), CALLER)
    assert robot.bot
    assert await doorman.authenticate_user(WebCredentials(resume_token=tokens.issue_token(robot)), CALLER) == robot
    assert not (await doorman.authenticate_user(WebCredentials(ticket="t", bot=True), CALLER)).bot
    local = WebAuthenticator(WebConfig(signing_key=KEY, local_owner=True), MemoryContext(), tokens, Clock())
    assert not (await local.authenticate_user(WebCredentials(bot=True), CALLER)).bot


def test_a_token_from_before_there_were_bots_is_a_persons() -> None:
    tokens = tokens_of(Clock())
    body = tokens.issue_token(GUEST).partition(".")[0]
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    del claims["bot"]
    older = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    signature = hmac.digest(KEY, PURPOSE + older.encode(), "sha256")
    assert tokens.read_user(f"{older}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}") == GUEST


def test_settings_that_let_strangers_in_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="signing key"):
        WebConfig(signing_key=b"short")
    with pytest.raises(ConfigurationError, match="owner"):
        WebConfig(signing_key=KEY, api_key="k", local_owner=True)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("localhost.evil.example", False),
        ("192.168.0.1", False),
    ],
)
def test_only_loopback_is_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_secrets_do_not_show_when_printed() -> None:
    assert "hush" not in repr(WebConfig(signing_key=b"hush" * 4, api_key="hush-key"))
