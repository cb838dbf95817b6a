"""A conversation that outgrows its model: facts, then a summary, then the older part goes."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
import pytest_asyncio

from maestro.domain.conversations.conversation import INSTRUCTIONS
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.llm.models import estimate_tokens
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.memory.memory import EXTRACTED_CONFIDENCE
from tests.support.history import history_of
from tests.support.instance import Instance, Row, running_instance
from tests.support.llm_server import Failure, Recorded
from tests.support.web_client import WebClient
from workflows import steps as policies

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("message-flow")]

SMALL_MODEL = "openai/nobody-knows-this-model"
"""Its window is 8,192 tokens, so a conversation may take 6,144."""

THRESHOLD = 6_144

FACTS = INSTRUCTIONS[CallPurpose.FACTS]
SUMMARY = INSTRUCTIONS[CallPurpose.SUMMARY]
LEARNED = """[MEMORY:sticky] Never call her Adelaide. [/MEMORY]
[MEMORY:user_preference] Ada likes short answers. [/MEMORY]
Something that is not asked for."""

FILLER = " ".join(["seven words that mean nothing at all"] * 90)
"""About 850 tokens."""
ROUNDS = 7
"""So many messages of this length fit; the next one makes compaction due."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    agents = [{"slug": "conductor", "role": "conductor", "model": SMALL_MODEL}]
    async with running_instance(tmp_path_factory.mktemp("compaction"), agents=agents) as instance:
        yield instance


@pytest.fixture(autouse=True)
def scripted(maestro: Instance) -> None:
    """Let the model answer briefly, and extract and summarise as it should."""
    maestro.llm.reset()
    maestro.llm.script(reply="as you say")
    maestro.llm.script(FACTS, reply=LEARNED)
    maestro.llm.script(SUMMARY, reply="They spoke of nothing at all.")


async def fill(client: WebClient, rounds: int = ROUNDS) -> None:
    """Talk until the next message makes compaction due."""
    for number in range(rounds):
        await client.ask(f"message-{number} {FILLER}", patience=30)


def asked_since(maestro: Instance, before: int) -> list[Recorded]:
    return maestro.llm.requests[before:]


async def last_job(maestro: Instance, channel: str, count: int) -> Row:
    """Return the newest of so many answered jobs."""
    return (await maestro.ended(channel, "completed", count))[-1]


def conversation(maestro: Instance, channel: str) -> Row:
    [row] = maestro.query("SELECT * FROM conversations WHERE channel = ?", channel)
    return row


def contents(maestro: Instance, table: str, channel: str) -> list[str]:
    """Return the first words of the messages that are in a table."""
    sql = f"SELECT content FROM {table} WHERE conversation_id = ? ORDER BY id"
    return [row["content"].split()[0] for row in maestro.query(sql, conversation(maestro, channel)["id"])]


def calls(maestro: Instance, job: Row) -> Sequence[tuple[str, str]]:
    """Return purpose and state of a job's model calls in order."""
    rows = maestro.query("SELECT purpose, state FROM llm_calls WHERE job_id = ? ORDER BY id", job["id"])
    return [(row["purpose"], row["state"]) for row in rows]


async def test_facts_then_summary_then_the_older_messages_go(maestro: Instance) -> None:
    async with maestro.client("long-talk") as client:
        await fill(client)
        assert not maestro.llm.matching(FACTS)
        before = len(maestro.llm.requests)
        assert await client.ask(f"message-7 {FILLER}", patience=30) == "as you say"
    facts, summary, answer = asked_since(maestro, before)
    job = await last_job(maestro, "long-talk", ROUNDS + 1)

    assert calls(maestro, job) == [("facts", "answered"), ("summary", "answered"), ("answer", "answered")]
    for request, instruction in ((facts, FACTS), (summary, SUMMARY)):
        assert request.last_user.startswith("[user]\n> message-0 seven")
        assert "[assistant]\n> as you say" in request.last_user
        assert request.last_user.endswith(instruction)
        assert "message-7" not in request.last_user

    [compaction] = maestro.query("SELECT * FROM compactions")
    assert compaction["summary"] == "They spoke of nothing at all."
    assert (compaction["messages_before"], compaction["messages_after"]) == (15, 10)
    assert contents(maestro, "messages_archive", "long-talk") == ["message-0", "as", "message-1", "as", "message-2"]
    assert contents(maestro, "messages", "long-talk")[0:2] == ["as", "message-3"]
    assert contents(maestro, "messages", "long-talk")[-2:] == ["message-7", "as"]

    assert (
        'Always keep in mind:\n- "Never call her Adelaide."\n\nWhat you remember:\n- "Ada likes short'
        in answer.texts[0]
    )
    assert "They spoke of nothing at all." in answer.texts[0]
    assert "message-0" not in "".join(answer.texts)
    assert answer.last_user.startswith("message-7")
    roles = [message["role"] for message in answer.body["messages"]]
    assert roles.count("system") == 1


async def test_the_counters_equal_the_sums_of_what_is_left(maestro: Instance) -> None:
    async with maestro.client("sums") as client:
        await fill(client, ROUNDS + 2)
    await last_job(maestro, "sums", ROUNDS + 2)
    row = conversation(maestro, "sums")
    [sums] = maestro.query("SELECT count(*), sum(token_estimate) FROM messages WHERE conversation_id = ?", row["id"])
    assert (row["message_count"], row["total_tokens_estimate"]) == tuple(sums)
    [archived] = maestro.query("SELECT count(*) FROM messages_archive WHERE conversation_id = ?", row["id"])
    assert (row["message_count"] + archived[0], archived[0] > 0) == (2 * (ROUNDS + 2), True)


async def test_a_fact_is_learned_once(maestro: Instance) -> None:
    for channel in ("first-time", "second-time"):
        async with maestro.client(channel) as client:
            await fill(client, ROUNDS + 1)
        assert "message-0" in contents(maestro, "messages_archive", channel)
    rows = maestro.query("SELECT category, content, confidence, access_count FROM memory_facts ORDER BY category")
    assert [tuple(row)[:2] for row in rows] == [
        ("sticky", "Never call her Adelaide."),
        ("user_preference", "Ada likes short answers."),
    ]
    assert all(row["confidence"] > EXTRACTED_CONFIDENCE for row in rows), "what is said again is surer"
    assert all(row["access_count"] > 0 for row in rows)


async def test_no_prompt_takes_more_than_its_share_of_the_window(maestro: Instance) -> None:
    async with maestro.client("budget") as client:
        await fill(client, ROUNDS + 4)
    prompts = maestro.query("SELECT max(tokens) FROM prompts JOIN queue ON queue.id = job_id WHERE channel = 'budget'")
    # The tools take some hundreds beside it, and a round of 850 that does not fit whole is left out.
    assert 4_000 < prompts[0][0] <= 8_192 - 2_048


async def test_facts_that_fail_put_the_compaction_off_and_the_answer_comes(maestro: Instance) -> None:
    maestro.llm.script(FACTS, failure=Failure.status(400), times=1)
    async with maestro.client("no-facts") as client:
        await fill(client)
        assert await client.ask(f"message-7 {FILLER}", patience=30) == "as you say"
        job = await last_job(maestro, "no-facts", ROUNDS + 1)
        assert calls(maestro, job) == [("facts", "failed"), ("answer", "answered")]
        assert contents(maestro, "messages_archive", "no-facts") == []
        [step] = maestro.query("SELECT state, error FROM job_steps WHERE job_id = ? AND step = 'compaction'", job["id"])
        assert tuple(step) == ("failed", "BadRequest")
        # What was put off happens with the next message.
        await client.ask("message-8", patience=30)
    job = await last_job(maestro, "no-facts", ROUNDS + 2)
    assert calls(maestro, job) == [("facts", "answered"), ("summary", "answered"), ("answer", "answered")]
    assert len(contents(maestro, "messages_archive", "no-facts")) == 7


async def test_a_summary_that_fails_deletes_nothing_and_the_answer_comes(maestro: Instance) -> None:
    maestro.llm.script(SUMMARY, failure=Failure.status(400), times=1)
    async with maestro.client("no-summary") as client:
        await fill(client)
        assert await client.ask(f"message-7 {FILLER}", patience=30) == "as you say"
        job = await last_job(maestro, "no-summary", ROUNDS + 1)
        assert calls(maestro, job) == [("facts", "answered"), ("summary", "failed"), ("answer", "answered")]
        assert contents(maestro, "messages_archive", "no-summary") == []
        # The next message goes on with the summary of the same part: the facts are held.
        await client.ask("message-8", patience=30)
    job = await last_job(maestro, "no-summary", ROUNDS + 2)
    assert calls(maestro, job) == [("summary", "answered"), ("answer", "answered")]
    assert len(maestro.llm.matching(FACTS)) == 1
    failed, answered = maestro.llm.matching(SUMMARY)
    assert failed.last_user == answered.last_user
    assert contents(maestro, "messages_archive", "no-summary") == ["message-0", "as", "message-1", "as", "message-2"]


async def test_a_provider_that_does_not_answer_holds_the_answer_up_for_a_limited_time(
    maestro: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "COMPACTION_TIMEOUT", timedelta(seconds=2))
    maestro.llm.script(FACTS, failure=Failure.silence())
    async with maestro.client("patience") as client:
        await fill(client)
        assert await client.ask(f"message-7 {FILLER}", patience=12) == "as you say"
    job = await last_job(maestro, "patience", ROUNDS + 1)
    steps = maestro.query("SELECT state FROM job_steps WHERE job_id = ? AND step = 'compaction'", job["id"])
    assert [row["state"] for row in steps] == ["interrupted"]
    assert contents(maestro, "messages_archive", "patience") == []


async def test_a_repeated_attempt_does_not_buy_the_facts_again(maestro: Instance) -> None:
    maestro.llm.script(SUMMARY, failure=Failure.status(500), times=1)
    async with maestro.client("repeat") as client:
        await fill(client)
        before = len(maestro.llm.requests)
        await client.ask(f"message-7 {FILLER}", patience=30)
    job = await last_job(maestro, "repeat", ROUNDS + 1)
    assert calls(maestro, job) == [
        ("facts", "answered"),
        ("summary", "failed"),
        ("summary", "answered"),
        ("answer", "answered"),
    ]
    facts, failed, repeated, _ = asked_since(maestro, before)
    assert FACTS in facts.last_user
    assert failed.body == repeated.body
    steps = maestro.query("SELECT state FROM job_steps WHERE job_id = ? AND step = 'compaction'", job["id"])
    assert [row["state"] for row in steps] == ["failed", "done"]


async def test_a_restart_in_the_middle_goes_on_with_the_summary(maestro: Instance) -> None:
    maestro.llm.script(SUMMARY, failure=Failure.silence(), times=1)
    async with maestro.client("cut-off") as client:
        await fill(client)
        await client.say(f"message-7 {FILLER}")
        await maestro.asked(SUMMARY)
    await maestro.restart()
    job = await last_job(maestro, "cut-off", ROUNDS + 1)
    assert calls(maestro, job) == [
        ("facts", "answered"),
        ("summary", "interrupted"),
        ("summary", "answered"),
        ("answer", "answered"),
    ]
    assert len(maestro.llm.matching(FACTS)) == 1
    assert contents(maestro, "messages_archive", "cut-off")[0] == "message-0"


async def test_an_archived_message_is_answered_again_on_a_restart(maestro: Instance) -> None:
    async with maestro.client("replayed") as client:
        await fill(client, ROUNDS + 1)
        first = (await maestro.ended("replayed", "completed", ROUNDS + 1))[0]
        assert "message-0" in contents(maestro, "messages_archive", "replayed")
        before = len(maestro.llm.requests)
        with maestro.operator() as operator:
            await operator.jobs.replay(first["id"], ReplayMode.RESTART, "a test")
        await client.wait_for("message", patience=30)
    answer = asked_since(maestro, before)[-1]
    assert answer.last_user.startswith("message-0")
    assert contents(maestro, "messages", "replayed").count("message-0") == 1
    assert "message-0" not in contents(maestro, "messages_archive", "replayed")
    row = conversation(maestro, "replayed")
    [sums] = maestro.query("SELECT count(*), sum(token_estimate) FROM messages WHERE conversation_id = ?", row["id"])
    assert (row["message_count"], row["total_tokens_estimate"]) == tuple(sums)


async def test_nothing_that_was_said_or_learned_travels_through_temporal(maestro: Instance) -> None:
    async with maestro.client("quiet") as client:
        await fill(client, ROUNDS + 1)
    job = await last_job(maestro, "quiet", ROUNDS + 1)
    history = await history_of(maestro, job["id"])
    assert b"compact_conversation" in history
    for text in (b"seven words", b"message-7", b"Adelaide", b"nothing at all", b"durable facts"):
        assert text not in history


async def test_a_message_that_comes_meanwhile_waits_and_other_lanes_do_not(maestro: Instance) -> None:
    maestro.llm.script(SUMMARY, reply="They spoke of nothing at all.", delay=1.5, times=1)
    async with maestro.client("meanwhile") as client, maestro.client("elsewhere") as other:
        await fill(client)
        await client.say(f"message-7 {FILLER}", client_id="seven")
        await maestro.asked(SUMMARY)
        await client.say("message-8", client_id="eight")
        assert await other.ask("is anybody there") == "as you say"
        [compacting] = maestro.llm.matching(SUMMARY)
        assert compacting.outcome == "in flight", "another lane is answered meanwhile"
        answers = [await client.wait_for("message", patience=30) for _ in range(2)]
    assert [frame["replyTo"].rpartition(":")[2] for frame in answers] == ["seven", "eight"]
    jobs = await maestro.ended("meanwhile", "completed", ROUNDS + 2)
    assert calls(maestro, jobs[-1]) == [("answer", "answered")]
    [compaction] = maestro.query(
        "SELECT * FROM compactions WHERE conversation_id = ?", conversation(maestro, "meanwhile")["id"]
    )
    assert (compaction["messages_before"], compaction["messages_after"]) == (15, 10)
    kept, gone = (contents(maestro, table, "meanwhile") for table in ("messages", "messages_archive"))
    assert [text for text in [*gone, *kept] if text.startswith("message")] == [f"message-{n}" for n in range(9)]
    # What came meanwhile is answered from the new context too.
    assert "They spoke of nothing at all." in maestro.llm.matching("message-8")[-1].texts[0]


async def test_at_the_threshold_nothing_is_compacted_and_a_token_more_is(maestro: Instance) -> None:
    async with maestro.client("threshold") as client:
        await fill(client, 6)
        counted = "UPDATE conversations SET total_tokens_estimate = ? WHERE channel = 'threshold'"
        maestro.change(counted, THRESHOLD - estimate_tokens("to the brim"))
        await client.ask("to the brim")
        assert contents(maestro, "messages_archive", "threshold") == []
        assert not maestro.llm.matching(FACTS)
        maestro.change(counted, THRESHOLD + 1 - estimate_tokens("over the brim"))
        await client.ask("over the brim", patience=30)
    assert len(maestro.llm.matching(FACTS)) == 1
    assert contents(maestro, "messages_archive", "threshold")


async def test_a_message_longer_than_the_window_is_answered_from_its_beginning_and_its_end(maestro: Instance) -> None:
    """The stored message stays whole; the model's window decides how much of it is shown."""
    said = ("Read this log.\n" + "number 17: some long line of a log\n" * 900)[:31_900] + "\nWhat went wrong?"
    async with maestro.client("long") as client:
        assert await client.ask(said, patience=30) == "as you say"
    shown = maestro.llm.matching("Read this log.")[-1].last_user
    assert shown.startswith("Read this log.\nnumber 17")
    assert shown.endswith("\nWhat went wrong?")
    assert "characters of this message are left out here" in shown
    assert len(shown) < 20_000
    [job] = await maestro.ended("long", "completed")
    [stored] = maestro.query("SELECT content FROM messages WHERE job_id = ? AND role = 'user'", job["id"])
    assert stored["content"] == said
    [layers] = maestro.query("SELECT layers FROM prompts WHERE job_id = ?", job["id"])
    asked = json.loads(layers["layers"])[-1]
    assert asked["note"] == f"{len(said) - len(shown) + len(mark(shown))} characters left out"


def mark(shown: str) -> str:
    """Return what stands in the place of what was left out, with the lines around it."""
    [found] = re.findall(r"\n\n\[[\d,]+ characters of this message are left out here, [^]]+\]\n\n", shown)
    return str(found)
