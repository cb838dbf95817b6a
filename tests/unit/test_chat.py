"""The chat as everybody uses it: scanned and cut before anything is kept, by the rules of that moment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.chat import ChatService, end_session, join_session
from maestro.domain.agent_chat import HUMAN, NOTE, TRUNCATED
from maestro.domain.errors import Forbidden, InvalidEdit
from maestro.domain.redaction import REDACTED, ScanResult, ScanRules, TextSpan
from maestro.domain.settings.jobs import ChatLimits, ChatSettings, ScannerSettings
from maestro.settings import Settings
from maestro.store.store import Store
from tests.support.job_rows import JobRows

SECRET = "hunter2"


class Finds:
    """Finds one secret."""

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        at = text.find(SECRET) if rules.enabled else -1
        return ScanResult(text, (TextSpan(at, at + len(SECRET)),) if at >= 0 else ())


class Rules:
    """Rules that somebody changes meanwhile."""

    def __init__(self) -> None:
        self.now = ChatSettings()

    def __call__(self) -> ChatSettings:
        return self.now


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def chat(rows: JobRows, rules: Rules) -> ChatService:
    return ChatService(rows.store, Finds(), rules)


def texts(chat: ChatService) -> list[str]:
    return [post.text for post in chat.list_posts()]


def test_what_is_posted_is_read_by_everybody_and_the_pointer_is_moved_by_who_has_read(
    rows: JobRows, chat: ChatService
) -> None:
    assert chat.add_post(HUMAN, "hello") == 1
    assert chat.add_post("@ada", "hello back") == 2
    with rows.store.begin() as tx:
        assert [post.author for post in tx.chat.list_unread("ada").messages] == [HUMAN, "@ada"], "its own posts too"
        assert tx.chat.list_unread("ada").new_pointer == 2
        tx.chat.mark_read("ada", 1)
        assert [post.id for post in tx.chat.list_unread("ada").messages] == [2]
    assert chat.get_new_outside("bob").new_pointer == 2
    assert chat.get_new_outside("bob").messages == []


def test_a_secret_is_taken_out_and_a_long_post_is_cut_by_the_rules_of_the_moment(
    chat: ChatService, rules: Rules
) -> None:
    chat.add_post(HUMAN, f"it is {SECRET}")
    rules.now = ChatSettings(limits=ChatLimits(max_message_chars=64), scanner=ScannerSettings(enabled=False))
    chat.add_post(HUMAN, f"it is {SECRET}")
    chat.add_post(HUMAN, "x" * 65)
    first, second, third = texts(chat)
    assert (first, second) == (f"it is {REDACTED}{NOTE}", f"it is {SECRET}")
    assert third == "x" * (64 - len(TRUNCATED)) + TRUNCATED


@pytest.mark.parametrize("text", ["", " \n\t ", "\0", "\u2028"])
def test_a_post_without_text_is_refused(chat: ChatService, text: str) -> None:
    with pytest.raises(InvalidEdit, match="give it a text"):
        chat.add_post(HUMAN, text)
    assert texts(chat) == []


def test_text_that_no_store_takes_is_made_storable(chat: ChatService) -> None:
    chat.add_post(HUMAN, "half \ud83c a\0 balloon")
    assert texts(chat) == ["half \ufffd a balloon"]


def test_who_takes_no_part_cannot_post(chat: ChatService) -> None:
    with pytest.raises(Forbidden, match="@architect"):
        chat.add_post("@architect", "hello")


def test_a_process_goes_on_with_the_open_session_and_ends_it_when_it_is_stopped(rows: JobRows) -> None:
    def current() -> str | None:
        with rows.store.view() as tx:
            return tx.chat.find_current_session()

    join(rows.store, Settings.model_validate({"chat": {"enabled": False}}))
    assert current() is None
    join(rows.store, Settings())
    first = current()
    join(rows.store, Settings())
    assert current() == first, "after a crash it goes on"
    end(rows.store, Settings.model_validate({"chat": {"enabled": False}}))
    assert current() == first, "who has no chat ends nothing"
    end(rows.store, Settings())
    join(rows.store, Settings())
    assert current() not in (None, first)
    pinned = {"session": {"id": "spring"}}
    join(rows.store, Settings.model_validate(pinned))
    assert current() == "spring"
    end(rows.store, Settings.model_validate({**pinned, "temporal": {"address": "localhost:7233"}}))
    assert current() == "spring", "processes that share the store go on with it"
    end(rows.store, Settings.model_validate(pinned))
    assert current() is None


def join(store: Store, settings: Settings) -> None:
    join_session(store, settings.chat, settings.session)


def end(store: Store, settings: Settings) -> None:
    end_session(store, settings.chat, settings.session, shared=not settings.temporal.embedded)
