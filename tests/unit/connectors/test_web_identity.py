"""Resume tokens: who they stand for, and for how long."""

from datetime import UTC, datetime, timedelta

import pytest

from connectors.base import Identity, Role
from connectors.web.config import WebConfig, is_loopback
from connectors.web.errors import Unauthorized
from connectors.web.frames import Credentials
from connectors.web.identity import Doorman, Guest, ResumeTokens
from maestro.domain.errors import ConfigurationError
from tests.support.memory_context import MemoryContext

KEY = b"0123456789abcdef"
GUEST = Guest(Identity("web-1", "Ada ü 🙂", Role.USER))


class Clock:
    """A time of day that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_a_token_stands_for_who_it_was_issued_to() -> None:
    tokens = ResumeTokens(KEY, Clock())
    assert tokens.read(tokens.issue(GUEST)) == GUEST


def test_a_token_expires_after_thirty_days() -> None:
    clock = Clock()
    tokens = ResumeTokens(KEY, clock)
    token = tokens.issue(GUEST)
    clock.now += timedelta(days=30)
    assert tokens.read(token) == GUEST
    clock.now += timedelta(seconds=1)
    with pytest.raises(Unauthorized, match="expired"):
        tokens.read(token)


def test_a_token_of_another_key_is_refused() -> None:
    token = ResumeTokens(b"another key of 16", Clock()).issue(GUEST)
    with pytest.raises(Unauthorized, match="not valid"):
        ResumeTokens(KEY, Clock()).read(token)


async def test_a_display_name_changes_the_name_and_nothing_else() -> None:
    tokens = ResumeTokens(KEY, Clock())
    doorman = Doorman(WebConfig(signing_key=KEY, api_key="k"), MemoryContext(), tokens)
    again = await doorman.admit(Credentials(resume_token=tokens.issue(GUEST), user_name="local"))
    assert again == Guest(Identity("web-1", "local", Role.USER))


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
