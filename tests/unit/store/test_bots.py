"""Bots as rows, the cursors of channels, and channels that are closed."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.connectors import BotInstance
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.llm.accounts import StoredKey
from maestro.domain.messages import Address
from maestro.store.platforms.bots import set_secrets
from maestro.store.store import Store

GENERAL = Address(platform="discord", channel="100")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(tmp_path / "maestro.db")) as store:
        yield store


@pytest.mark.parametrize(
    ("marks", "last"),
    [(("9", "10"), "10"), (("10", "9"), "10"), (("1700.0002", "1700.0001"), "1700.0002"), (("", "5"), "5")],
)
def test_a_cursor_never_goes_back(store: Store, marks: tuple[str, ...], last: str) -> None:
    with store.begin() as tx:
        for mark in marks:
            tx.bots.channels.advance_cursor(GENERAL, mark)
    with store.view() as tx:
        assert tx.bots.channels.read_cursor(GENERAL) == last
        assert tx.bots.channels.read_cursor(GENERAL.model_copy(update={"thread": "7"})) is None


def test_a_channel_that_is_only_remembered_has_an_empty_cursor_and_keeps_one_it_had(store: Store) -> None:
    direct = GENERAL.model_copy(update={"channel": "dm"})
    with store.begin() as tx:
        tx.bots.channels.record_activity(direct, direct=True)
        tx.bots.channels.advance_cursor(GENERAL, "5")
        tx.bots.channels.record_activity(GENERAL, direct=False)
    with store.view() as tx:
        known = {
            row.channel: (row.mark, row.direct) for row in tx.bots.channels.list_known_channels("discord", "default")
        }
        assert known == {"dm": ("", True), "100": ("5", False)}
        assert tx.bots.channels.list_known_channels("discord", "other") == []


def test_a_channel_is_closed_with_its_reason_until_it_is_opened(store: Store) -> None:
    thread = GENERAL.model_copy(update={"thread": "7"})
    with store.begin() as tx:
        tx.bots.channels.disable(GENERAL, "Missing Access")
        assert tx.bots.channels.read_disable_reason(thread) == "Missing Access"
        assert tx.bots.channels.enable(thread)
        assert not tx.bots.channels.enable(thread)
        assert tx.bots.channels.read_disable_reason(GENERAL) is None


def test_a_bot_keeps_the_secrets_that_are_not_given_anew(store: Store) -> None:
    with store.begin() as tx:
        bot = tx.bots.add_bot(BotInstance(platform="slack", account="acme"), "grace")
        set_secrets(bot, {"botToken": StoredKey("sealed:x", "wxyz"), "appToken": StoredKey("env:APP")})
        set_secrets(bot, {"botToken": StoredKey("sealed:y", "last"), "appToken": StoredKey("")})
        tx.bots.save_bot(bot, "grace", "connector.change")
    with store.view() as tx:
        kept = tx.bots.get_bot("slack", "acme")
        assert (kept.stored_secrets, kept.last_characters) == ({"botToken": "sealed:y"}, {"botToken": "last"})
        assert [entry.action for entry in tx.system.audit.list_latest_entries(5)] == [
            "connector.change",
            "connector.add",
        ]


def test_every_change_of_a_bot_gives_them_another_edition(store: Store) -> None:
    seen = set()
    for enabled in (True, False):
        with store.begin() as tx:
            bot = tx.bots.find_bot("discord", "default") or BotInstance(platform="discord", account="default")
            bot.enabled = enabled
            tx.bots.save_bot(bot, "grace", "connector.change")
        with store.view() as tx:
            seen.add(tx.system.versions.read_versions().bot_instances)
    with store.begin() as tx:
        tx.bots.remove_bot(tx.bots.get_bot("discord", "default"), "grace")
    with store.view() as tx:
        seen.add(tx.system.versions.read_versions().bot_instances)
    assert len(seen) == 3


def test_what_the_configuration_names_no_longer_is_gone_and_what_operators_switched_off_stays_so(store: Store) -> None:
    with store.begin() as tx:
        tx.bots.set_configured({("discord", "default"): None, ("slack", "default"): None})
        bot = tx.bots.get_bot("discord", "default")
        bot.enabled = False
        tx.bots.save_bot(bot, "grace", "connector.disable")
        with pytest.raises(Conflict, match="discord/default is set by the configuration"):
            tx.bots.remove_bot(bot, "grace")
    with store.begin() as tx:
        tx.bots.set_configured({("discord", "default"): None})
        assert [(bot.name, bot.enabled) for bot in tx.bots.list_bots()] == [("discord/default", False)]


def test_the_web_connector_is_no_bot(store: Store) -> None:
    with store.begin() as tx:
        tx._link.session.add(BotInstance(platform="web", account="default"))
        tx._link.flush_writes()
        assert tx.bots.list_bots() == []
        with pytest.raises(NotFound):
            tx.bots.get_bot("web", "default")


def test_a_connector_keeps_its_last_error_and_its_last_event(store: Store) -> None:
    with store.begin() as tx:
        tx.users.record_connector_state("discord", "default", "failed", "the token is wrong", trouble=True)
        tx.users.record_connector_event("discord", "default", timedelta(seconds=1.5))
        tx.users.record_connector_state("discord", "default", "running", "")
    with store.view() as tx:
        [status] = tx.users.list_connectors()
        assert (status.state, status.last_error, status.lag_seconds) == ("running", "the token is wrong", 1.5)
        assert status.last_event_at == status.changed_at or status.last_event_at is not None


def test_skipped_messages_are_counted_together(store: Store) -> None:
    with store.begin() as tx:
        tx.inbox.ignored.add_ignored(GENERAL, "too old")
        tx.inbox.ignored.add_ignored(GENERAL, "too old", 40)
    with store.view() as tx:
        assert tx.inbox.ignored.count_by_reason() == {"too old": 41}
