"""Moving messages out of a conversation and finding them again, on a real database."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from maestro.domain.agents.agent import Agent
from maestro.domain.conversations.conversation import ArchivedMessage, Message
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import Job
from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.prompts import CallKey, CallPurpose, LLMResponse, Role, StoredTurn
from maestro.domain.memory.memory import Fact, FactCategory
from maestro.domain.messages import Address, IncomingMessage
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.conversations import talk_with
from tests.support.fresh_store import fresh_store

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ADDRESS = Address(platform="web", channel="c")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with an agent, a job that answers one message, and a conversation of three."""
    opened = fresh_store(tmp_path / "maestro.db", clock=lambda: NOW)
    with opened.begin() as tx:
        agent = tx.agents.save_agent(Agent(slug="a", name="A", created_at=NOW, updated_at=NOW))
        row = tx.inbox.add(IncomingMessage(id="m", address=ADDRESS, user_id="u", content="one", sent_at=NOW), "job")
        tx.jobs.add(Job(id="job", inbox_id=row.id, created_at=NOW, **ADDRESS.model_dump()))
        conversation = talk_with(tx, agent.id or 0, ADDRESS, ("u", "U"))
        for number, role in ((1, Role.USER), (2, Role.ASSISTANT), (3, Role.USER)):
            tx.conversations.add_message(
                Message(
                    conversation_id=conversation.id or 0,
                    role=role,
                    content=f"text {number}",
                    token_estimate=10 * number,
                    inbox_id=row.id if number == 1 else None,
                    job_id="job",
                    created_at=NOW,
                )
            )
    yield opened
    opened.close()


def counters(tx: Transaction) -> tuple[int, int]:
    conversation = tx.conversations.get(1)
    return conversation.message_count, conversation.total_tokens_estimate


def archive(store: Store, *ids: int) -> None:
    with store.begin() as tx:
        tx.conversations.compactions.archive_messages(1, ids)


def test_archived_messages_are_gone_from_the_conversation_and_from_its_counters(store: Store) -> None:
    archive(store, 1, 2)
    with store.view() as tx:
        assert [message.id for message in tx.conversations.list_messages(1)] == [3]
        assert counters(tx) == (1, 30)
        assert tx.conversations.read_message(2).content == "text 2"
        assert isinstance(tx.conversations.find_recorded_message(1), ArchivedMessage)


def test_a_stored_prompt_still_finds_its_messages(store: Store) -> None:
    turns = [StoredTurn(role=Role.USER, message_id=1), StoredTurn(role=Role.USER, message_id=3)]
    archive(store, 1)
    with store.view() as tx:
        assert [message.content for message in tx.llm.prompts.restore_messages(turns)] == ["text 1", "text 3"]
        with pytest.raises(NotFound, match="77"):
            tx.llm.prompts.restore_messages([StoredTurn(role=Role.USER, message_id=77)])


def test_a_recalled_message_is_itself_again(store: Store) -> None:
    archive(store, 1, 2)
    with store.begin() as tx:
        recalled = tx.conversations.restore_recorded_message(1)
        assert recalled is not None
        assert (recalled.id, recalled.content) == (1, "text 1")
    with store.view() as tx:
        assert [message.id for message in tx.conversations.list_messages(1)] == [1, 3]
        assert counters(tx) == (2, 40)
    archive(store, 1)


def test_an_id_is_never_used_again(store: Store) -> None:
    archive(store, 1, 2, 3)
    with store.begin() as tx:
        later = tx.conversations.add_message(
            Message(conversation_id=1, role=Role.USER, content="later", token_estimate=1, job_id="job", created_at=NOW)
        )
        assert later.id == 4


def test_a_fact_that_is_known_in_the_same_words_is_not_kept_twice(store: Store) -> None:
    facts = [Fact(FactCategory.STICKY, "Tea, please."), Fact(FactCategory.STICKY, "Likes bats")]
    with store.begin() as tx:
        assert tx.memory.learn_facts(1, facts, conversation_id=1) == 2
        assert tx.memory.learn_facts(1, [Fact(FactCategory.STICKY, "tea,  PLEASE")], conversation_id=1) == 0
        assert tx.memory.learn_facts(1, [Fact(FactCategory.USER_PREFERENCE, "Tea, please")], conversation_id=1) == 1
        assert tx.memory.learn_facts(1, [Fact(FactCategory.STICKY, "Likes cats")], conversation_id=1) == 1
        tx.memory.record_use(tx.memory.find_best_facts(1, 15)[:1])
    with store.view() as tx:
        best = tx.memory.find_best_facts(1, 15)
        assert [fact.category for fact in best] == [FactCategory.STICKY] * 3 + [FactCategory.USER_PREFERENCE]
        assert sorted(fact.access_count for fact in tx.memory.search_facts(1, "", 15)) == [0, 0, 0, 1]
        assert len(tx.memory.find_best_facts(1, 0)) == 3


ESTIMATE = CallEstimate("p", "m", 1, None)


def test_an_answer_for_one_purpose_is_not_taken_for_another(store: Store) -> None:
    facts = CallKey(job_id="job", number=1, purpose=CallPurpose.FACTS)
    answer = CallKey(job_id="job", number=1)
    response = LLMResponse(
        content="NONE", model="m", provider="p", account="a", input_tokens=1, output_tokens=1, duration_ms=1
    )
    with store.begin() as tx:
        assert tx.llm.calls.record_sending(facts, "digest of facts", ESTIMATE) == 1
        assert tx.llm.calls.record_sending(answer, "digest of answer", ESTIMATE) == 1
    with store.begin() as tx:
        tx.llm.calls.store_answer(facts, 1, response)
        tx.llm.calls.record_failure(answer, 1, "BadRequest")
    with store.view() as tx:
        held = tx.llm.calls.find_answer(facts)
        assert held is not None
        assert (held.content, held.purpose) == ("NONE", CallPurpose.FACTS)
        assert tx.llm.calls.find_answer(answer) is None
        assert (tx.llm.calls.count_failures(answer), tx.llm.calls.count_failures(facts)) == (1, 0)
        assert tx.llm.calls.find_interrupted_request(answer) is None
