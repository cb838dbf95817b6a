"""A search in all conversations reads so many messages a look, and says where the next one goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.conversations.conversation import MessageColumns
from maestro.domain.conversations.views import ConversationFilter
from maestro.domain.llm.prompts import Role
from maestro.domain.messages import Address
from maestro.store.conversations import lists
from tests.support.conversations import talk_with
from tests.support.job_rows import JobRows


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobRows]:
    """Ten messages of two conversations, of which a look reads four."""
    monkeypatch.setattr(lists, "SEARCHED", 4)
    rows = JobRows.at(tmp_path)
    for number in range(1, 11):
        job_id = rows.add()
        with rows.store.begin() as tx:
            where = Address(platform="web", channel=f"channel-{number % 2}")
            conversation = talk_with(tx, 1, where)
            text = "the Needle" if number in (2, 3, 9) else "hay"
            tx.conversations.add_message(
                MessageColumns(
                    conversation_id=conversation.id or 0,
                    role=Role.USER,
                    content=text,
                    token_estimate=1,
                    job_id=job_id,
                    created_at=tx.now,
                )
            )
    yield rows
    rows.store.close()


def looks(rows: JobRows, text: str, limit: int = 5) -> list[tuple[list[int | None], int | None]]:
    """Return what each look finds until there is nothing more to look at."""
    found: list[tuple[list[int | None], int | None]] = []
    following: int | None = None
    with rows.store.view() as tx:
        while not found or following is not None:
            said, following = tx.conversations.lists.search_messages(text, following, limit)
            found.append(([one.message.id for one in said], following))
    return found


def test_a_look_says_where_the_next_goes_on_even_when_it_found_nothing(rows: JobRows) -> None:
    assert looks(rows, "needle") == [([9], 7), ([3], 3), ([2], None)]
    assert looks(rows, "nowhere") == [([], 7), ([], 3), ([], None)]


def test_a_full_page_goes_on_after_its_last_message(rows: JobRows) -> None:
    assert [ids for ids, _ in looks(rows, "hay", limit=2)] == [[10, 8], [7, 6], [5, 4], [1]]


def test_capital_letters_are_as_small_ones_and_signs_of_patterns_are_signs(rows: JobRows) -> None:
    assert [ids for ids, _ in looks(rows, "THE NEEDLE")] == [[9], [3], [2]]
    assert [ids for ids, _ in looks(rows, "n%dle")] == [[], [], []]


def test_one_conversation_is_searched_as_a_whole(rows: JobRows) -> None:
    with rows.store.view() as tx:
        said, following = tx.conversations.lists.search_messages("needle", None, 5, conversation_id=1)
    assert ([one.message.id for one in said], following) == ([9, 3], None)


def test_a_list_of_conversations_knows_what_was_said_lately(rows: JobRows) -> None:
    with rows.store.view() as tx:
        found, _ = tx.conversations.lists.list_conversation_page(ConversationFilter(q="needle"), None, 5)
    assert [one.channel for one in found] == ["channel-1"]
