"""The step that builds the prompt, over a store."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.agents.agent import Agent, MemoryScope
from maestro.domain.context.layers import LAYER_SIZES, LayerName
from maestro.domain.conversations.conversation import Compaction, Message, conversation_key
from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.jobs.job import Job, JobKind, StepRef
from maestro.domain.llm.models import estimate_messages, estimate_tokens, estimate_tools, prompt_budget
from maestro.domain.llm.prompts import Role
from maestro.domain.memory.memory import Fact, FactCategory
from maestro.domain.messages import Receipt
from maestro.domain.people.people import Person, PersonId
from maestro.domain.skills.files import SkillSource
from maestro.store.transaction import Transaction
from tests.support.job_rows import JobRows
from tests.support.llm_requests import TIME
from tests.support.spoken import SMALL, Spoken

LOG = "Some long log line, number 17.\n" * 9_700
"""300 kB."""


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path / "one")
    yield rows
    rows.store.close()


@pytest.fixture
def spoken(rows: JobRows) -> Spoken:
    bound(rows)
    return Spoken(rows)


def bound(rows: JobRows) -> None:
    """Give the store an agent that knows things, and another one beside it."""
    with rows.store.begin() as tx:
        ada = tx.agents.find_agent_by_slug("ada")
        assert ada is not None
        ada.voice, ada.quirks = "warm", '["counts in dozens"]'
        tx.agents.save_agent(ada)
        tx.agents.save_agent(
            Agent(slug="bob", name="Bob", description="knows prices", created_at=tx.now, updated_at=tx.now)
        )
        tx.agents.save_agent(
            Agent(slug="vip", name="V", allow_users="web:someone-else", created_at=tx.now, updated_at=tx.now)
        )
        facts = [Fact(FactCategory.STICKY, "never call her Addie"), Fact(FactCategory.USER_PREFERENCE, "likes tea")]
        tx.memory.learn_facts(ada.id or 0, facts, conversation_id=None)
        assert not tx.memory.set_state(ada.id or 0, "last-topic", "tea")


def agent_id(tx: Transaction, slug: str) -> int:
    agent = tx.agents.find_agent_by_slug(slug)
    assert agent is not None
    return agent.id or 0


def system(spoken: Spoken, job_id: str) -> str:
    return spoken.messages(job_id)[0].content


def layers(spoken: Spoken, job_id: str) -> dict[LayerName, int]:
    return {layer.name: layer.tokens for layer in LAYER_SIZES.validate_json(spoken.prompt(job_id).layers)}


async def test_the_same_store_makes_the_same_bytes(spoken: Spoken, tmp_path: Path) -> None:
    other = JobRows.at(tmp_path / "other")
    bound(other)
    twin = Spoken(other)
    kept = []
    for one in (spoken, twin):
        await one.answered("what do you know of me?")
        job_id = await one.answered("and what else?")
        with one.rows.store.view() as tx:
            [call] = tx.llm.calls.list_calls_of_job(job_id)
            kept.append((tx.llm.prompts.read_text(call.request), system(one, job_id), one.prompt(job_id).layers))
    other.store.close()
    assert kept[0] == kept[1]


async def test_what_is_known_stands_in_the_prompt(spoken: Spoken) -> None:
    text = system(spoken, await spoken.answered("hello"))
    for words in (
        "warm",
        "counts in dozens",
        "Be brief.",
        '"never call her Addie"',
        '"likes tea"',
        '"last-topic": "tea"',
    ):
        assert words in text
    assert '- @bob: "knows prices"' in text
    assert "@vip" not in text, "the person may not talk to it"
    assert "@ada" not in text, "nobody passes a task to itself"


async def test_an_owner_hears_of_everybody(spoken: Spoken) -> None:
    with spoken.rows.store.begin() as tx:
        ada, grace, staff = agent_id(tx, "ada"), PersonId("web", "u-1"), tx.agents.colleagues.active_agents()

    def heard_of(person: Person | None) -> list[str]:
        return [one.slug for one in staff.list_colleagues(ada, staff.find_circle(person))]

    assert heard_of(Person(grace, is_owner=True)) == ["bob", "vip"]
    assert heard_of(Person(PersonId("web", "someone-else"))) == ["bob", "vip"]
    assert heard_of(Person(PersonId("web", "someone"))) == ["bob"]
    assert heard_of(None) == ["bob"], "without a person, what is open to all"


async def test_who_an_agent_is_is_kept_once_for_all_its_prompts(spoken: Spoken) -> None:
    turns = [json.loads(spoken.prompt(await spoken.answered(text)).turns)[0] for text in ("one", "two")]
    assert turns[0]["stable"] == turns[1]["stable"] != ""
    first = spoken.messages(spoken.asked[0])[0]
    assert first.content[: first.stable].endswith('- @bob: "knows prices"')


async def test_facts_that_were_told_are_used(spoken: Spoken) -> None:
    await spoken.answered("hello")
    with spoken.rows.store.view() as tx:
        assert {fact.access_count for fact in tx.memory.search_facts(agent_id(tx, "ada"), "", 15)} == {1}


async def test_a_message_of_300_kb_fits_into_an_8k_model_and_stays_whole_in_the_store(spoken: Spoken) -> None:
    spoken.window = SMALL
    with spoken.rows.store.begin() as tx:
        ada = tx.agents.find_agent_by_slug("ada")
        assert ada is not None
        ada.system_prompt = "Follow every rule of the house. " * 100
        tx.agents.save_agent(ada)
    await spoken.answered("an earlier question")
    job_id = await spoken.answered(f"Read this:\n{LOG}What went wrong?")
    [message] = spoken.messages(job_id)[1:]
    assert message.content.startswith("Read this:\nSome long log line")
    assert message.content.endswith("What went wrong?")
    assert "characters of this message are left out here" in message.content
    whole = estimate_messages(spoken.messages(job_id)) + estimate_tools([TIME])
    assert whole <= prompt_budget(SMALL)
    with spoken.rows.store.view() as tx:
        recorded = tx.conversations.find_recorded_message(tx.jobs.get(job_id).inbox_id)
    assert recorded is not None
    assert len(recorded.content) > 300_000


async def test_another_agents_answer_is_its_own_in_the_history(spoken: Spoken) -> None:
    job_id = await spoken.answered("ask bob")
    with spoken.rows.store.begin() as tx:
        bob, job = agent_id(tx, "bob"), tx.jobs.get(job_id)
        tx.jobs.add(Job(id="delegation-1", created_at=tx.now, **job.address.model_dump()))
        tx.conversations.add_message(
            Message(
                conversation_id=job.conversation_id or 0,
                role=Role.ASSISTANT,
                content="42 euros",
                token_estimate=estimate_tokens("42 euros"),
                job_id="delegation-1",
                agent_id=bob,
                created_at=tx.now,
            )
        )
    *_, heard, asked = spoken.messages(await spoken.answered("thanks"))
    assert (heard.role, heard.content) == (Role.USER, '[Agent @bob, "Bob", said:]\n> 42 euros')
    assert asked.content == "thanks"


async def test_what_is_learned_in_one_place_is_not_told_in_another(spoken: Spoken) -> None:
    spoken.scope = MemoryScope.CONVERSATION
    job_id = await spoken.answered("hello")
    with spoken.rows.store.begin() as tx:
        job = tx.jobs.get(job_id)
        place = tx.conversations.get(job.conversation_id).key
        secret, elsewhere = (Fact(FactCategory.STICKY, text) for text in ("said here", "said elsewhere"))
        tx.memory.learn_facts(job.agent_id or 0, [secret], conversation_id=None, memory_scope=place)
        tx.memory.learn_facts(job.agent_id or 0, [elsewhere], conversation_id=None, memory_scope="elsewhere")
    text = system(spoken, await spoken.answered("and now?"))
    assert '"said here"' in text
    assert "said elsewhere" not in text
    assert '"likes tea"' in text, "what holds everywhere is told everywhere"


async def test_a_delegate_that_goes_on_knows_its_task_its_own_words_and_what_it_learned(spoken: Spoken) -> None:
    spoken.scope = MemoryScope.CONVERSATION
    first = await spoken.answered("the long way")
    with spoken.rows.store.begin() as tx:
        bob, job = agent_id(tx, "bob"), tx.jobs.get(first)
        given: dict[str, Any] = {
            **job.address.model_dump(),
            "conversation_id": job.conversation_id,
            "inbox_id": job.inbox_id,
            "kind": JobKind.DELEGATION,
            "created_at": tx.now,
        }
        task = tx.jobs.add(Job(id="t-1", agent_id=bob, parent_id=first, depth=1, task="count", hears=True, **given))
        tx.jobs.add(Job(id="t-2", agent_id=agent_id(tx, "vip"), parent_id="t-1", task="add", hears=True, **given))
        tx.jobs.add(Job(id="t-3", agent_id=bob, parent_id="t-1", depth=2, **given))
        said = Message(
            conversation_id=job.conversation_id or 0,
            role=Role.ASSISTANT,
            content="I am asking @vip.",
            token_estimate=estimate_tokens("I am asking @vip."),
            job_id="t-1",
            agent_id=bob,
            created_at=tx.now,
        )
        task.answer_id = tx.conversations.add_message(said).id
        own = conversation_key(bob, job.address, None)
        tx.memory.learn_facts(
            bob, [Fact(FactCategory.STICKY, "twelve is a dozen")], conversation_id=None, memory_scope=own
        )
        tx.jobs.steps.start_attempt(StepRef(job_id="t-3", step="context"), "context", 1)
    spoken.build(StepRef(job_id="t-3", step="context"))
    text, asked, answered, told = spoken.messages("t-3")
    assert "twelve is a dozen" in text.content
    assert (asked.role, "count" in asked.content) == (Role.USER, True)
    assert (answered.role, answered.content) == (Role.ASSISTANT, "I am asking @vip.")
    assert (told.role, "@vip" in told.content) == (Role.USER, True)
    assert "the long way" not in "".join(message.content for message in spoken.messages("t-3"))


async def test_a_skill_is_given_to_the_message_that_wants_it_and_to_no_other(spoken: Spoken) -> None:
    with spoken.rows.store.begin() as tx:
        for slug, tools in (("review", "[]"), ("shell", "[run_shell]")):
            text = f"---\nslug: {slug}\nname: {slug}\ntriggers: {{keywords: [review]}}\nrequired_tools: {tools}\n---\n"
            tx.agents.skills.save_skill(SkillSource.parse_file(slug, f"{text}How to {slug}.".encode(), shipped=False))
    with_it = system(spoken, await spoken.answered("please review this"))
    assert "How to review." in with_it
    assert "How to shell." not in with_it, "the agent lacks the tool"
    assert "How to review." not in system(spoken, await spoken.answered("thank you"))


async def test_the_layers_of_a_prompt_are_kept_with_it(spoken: Spoken) -> None:
    await spoken.answered("hello")
    job_id = await spoken.answered("again")
    with spoken.rows.store.begin() as tx:
        conversation = tx.jobs.get(job_id).conversation_id or 0
        tx.conversations.compactions.add_compaction(
            Compaction(
                conversation_id=conversation,
                agent_id=1,
                summary="They said hello.",
                messages_before=2,
                messages_after=0,
                tokens_saved=1,
                created_at=tx.now,
            )
        )
    job_id = await spoken.answered("and again")
    told = layers(spoken, job_id)
    assert told[LayerName.SUMMARIES] > 0
    assert told[LayerName.HISTORY] > 0
    prompt = spoken.prompt(job_id)
    assert estimate_messages(spoken.messages(job_id)) <= prompt.tokens < sum(told.values()) + 10


async def test_a_task_is_done_with_the_persona_and_nothing_that_was_said(spoken: Spoken) -> None:
    giver = await spoken.answered("a question for somebody else")
    with spoken.rows.store.begin() as tx:
        bob, job = agent_id(tx, "bob"), tx.jobs.get(giver)
        tx.jobs.add(
            Job(
                id="delegation-1",
                kind=JobKind.DELEGATION,
                parent_id=giver,
                agent_id=bob,
                conversation_id=job.conversation_id,
                task="What does it cost?",
                created_at=tx.now,
                **job.address.model_dump(),
            )
        )
        tx.jobs.steps.start_attempt(StepRef(job_id="delegation-1", step="context"), "build_context", 1)
    spoken.build(StepRef(job_id="delegation-1", step="context"))
    told, task = spoken.messages("delegation-1")
    assert "Your purpose: knows prices" in told.content
    assert "talking with" not in told.content
    assert "Be brief." not in told.content
    assert task.role is Role.USER
    assert "> What does it cost?" in task.content


def replied(spoken: Spoken, folder: Path, text: str) -> str:
    """Accept a reply to the message with the platform's id m-1, and build its prompt; return its job."""
    job_id = spoken.rows.add(text)
    with closing(sqlite3.connect(folder / "one" / "maestro.db")) as database, database:
        database.execute("UPDATE inbox SET reply_to = 'm-1' WHERE job_id = ?", (job_id,))
    return spoken.built(job_id)


async def test_what_a_person_replied_to_is_quoted_unless_it_was_said_just_now(spoken: Spoken, tmp_path: Path) -> None:
    first = await spoken.answered("which shed?", "the blue one")
    with spoken.rows.store.begin() as tx:
        place = tx.jobs.get(first).address.model_dump()
        chunk = Delivery(
            job_id=first, purpose=DeliveryPurpose.ANSWER, seq=0, content="the blue one", created_at=tx.now, **place
        )
        tx.deliveries.mark_sent(tx.deliveries.add_chunk(chunk).id or 0, Receipt(platform_message_id="m-1"))
    soon = replied(spoken, tmp_path, "paint it")
    assert spoken.messages(soon)[-1].content == "paint it"
    for text in ("and now?", "and then?"):
        await spoken.answered(text)
    later = replied(spoken, tmp_path, "paint it")
    assert spoken.messages(later)[-1].content == "[In reply to what you said:]\n> the blue one\n\npaint it"
    after = spoken.prepared("thanks")
    assert "[In reply" not in "".join(message.content for message in spoken.messages(after))
