"""A channel that goes on under another id takes along what belonged to it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from maestro.domain.agents.edits import NewBinding
from maestro.domain.conversations.conversation import Conversation, ConversationStatus, conversation_key
from maestro.domain.messages import Address
from maestro.store.transaction import Transaction
from tests.support.job_rows import JobRows

OLD = Address(platform="telegram", channel="-5")
TOPIC = OLD.model_copy(update={"thread": "7"})
NEW = "-1005"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    found = JobRows.at(tmp_path)
    yield found
    found.store.close()


def in_new(address: Address) -> Address:
    return address.model_copy(update={"channel": NEW})


def talk(tx: Transaction, address: Address) -> Conversation:
    row = Conversation(
        key=conversation_key(1, address, None),
        agent_id=1,
        user_id="ann",
        started_at=NOON,
        last_message_at=NOON,
        **address.model_dump(),
    )
    tx._link.session.add(row)
    tx._link.session.flush()
    return row


def test_bindings_conversations_and_closed_channels_go_along(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        agent = tx.agents.list_agents()[0]
        tx.agents.bind_channel(agent, NewBinding(platform="telegram", channel="-5"), "operator")
        flat, topic = talk(tx, OLD).id, talk(tx, TOPIC).id
        tx.bots.channels.disable(OLD, "it was upgraded")
        assert tx.bots.moves.move_channel(OLD, NEW)
        assert not tx.bots.moves.move_channel(OLD, NEW), "told twice"
    with rows.store.view() as tx:
        assert (tx.bots.channels.find_new_id(OLD), tx.bots.channels.find_new_id(in_new(OLD))) == (NEW, NEW)
        assert tx.agents.find_binding(OLD) is None
        assert tx.agents.find_binding(in_new(OLD)) is not None
        assert tx.bots.channels.read_disable_reason(OLD) is None
        keys = {found: tx.conversations.read(found).key for found in (flat, topic) if found is not None}
    assert keys == {flat: conversation_key(1, in_new(OLD), None), topic: conversation_key(1, in_new(TOPIC), None)}


def test_a_conversation_that_goes_on_in_the_new_channel_already_stays(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        old, new = talk(tx, OLD).id, talk(tx, in_new(OLD)).id
        tx.bots.moves.move_channel(OLD, NEW)
    with rows.store.view() as tx:
        assert old is not None
        assert new is not None
        states = [tx.conversations.read(found).status for found in (old, new)]
    assert states == [ConversationStatus.CLOSED, ConversationStatus.ACTIVE]


def test_a_channel_that_moved_twice_is_found_at_once(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        tx.bots.moves.move_channel(OLD, "-6")
        tx.bots.moves.move_channel(OLD.model_copy(update={"channel": "-6"}), NEW)
        assert tx.bots.channels.find_new_id(OLD) == NEW
