"""Secrets in what agents remember and in what models are asked, step by step over a store.

See docs/decisions.md: redaction.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest

from activities.chunks import OutgoingContent
from activities.compaction import CompactionActivities
from activities.context import ModelRules
from activities.conversations import TagActivities
from activities.tags import ActingRules
from connectors.base import Idempotency
from maestro.domain.agents.agent import MemoryScope
from maestro.domain.jobs.flow import AnswerStep
from maestro.domain.jobs.job import StepRef
from maestro.domain.llm.calls import ModelTimeout
from maestro.domain.llm.prompts import StoredRequest
from maestro.domain.messages import Button
from maestro.domain.redaction import REDACTED, Redact, keep_text
from maestro.llm.accounts import Estimates
from maestro.llm.middleware.recorder import Recorder
from maestro.llm.middleware.request_changes import Redaction, RequestChanges
from tests.support.answer_spool import answer_spool
from tests.support.api_client import BASIC, app_of, client
from tests.support.delivery_bench import Bench, Platform
from tests.support.job_rows import JobRows
from tests.support.llm_accounts import replay_guard
from tests.support.llm_fakes import Accounts, Scripted
from tests.support.llm_requests import request_of, response_of
from tests.support.scanning import SECRET, without
from tests.support.spoken import OneTool, Spoken

MEMORY = "/api/agents/ada/memory"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store with an agent."""
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def remembered(rows: JobRows) -> list[str]:
    """Return all facts and values."""
    with rows.store.view() as tx:
        agent = tx.agents.find_agent_by_slug("ada")
        assert agent is not None
        facts = tx.memory.find_best_facts(agent.id or 0, 99, "")
        return [fact.content for fact in facts] + [state.value for state in tx.memory.read_states(agent.id or 0, "")]


async def test_tags_are_acted_on_without_secrets(rows: JobRows) -> None:
    tagged = f"Fine. [MEMORY:sticky] the key is {SECRET} [/MEMORY][STATE:token] {SECRET} [/STATE]"
    job_id = await answered_only(Spoken(rows), tagged)
    step = AnswerStep(job_id=job_id, step="tags", number=1)
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(step, "record_answer", 1)
    rules = ActingRules(MemoryScope.AGENT, frozenset(), without)
    TagActivities(rows.store, lambda: rules, lambda: None).record_answer(step)
    assert remembered(rows) == [f"the key is {REDACTED}", REDACTED]


async def answered_only(spoken: Spoken, answer: str) -> str:
    """Have a model answer without acting on it; return the job."""
    job_id = spoken.prepared("remember this")
    request = request_of().model_copy(update={"key": request_of().key.model_copy(update={"job_id": job_id})})
    await recorder(spoken.rows, Scripted(response_of(answer))).complete(request)
    return job_id


def recorder(rows: JobRows, inner: Scripted) -> Recorder:
    return Recorder(inner, rows.store, Estimates(Accounts(()), lambda _: None), answer_spool(rows.store))


async def test_what_operators_have_agents_remember_is_scanned_too(rows: JobRows) -> None:
    async with client(app_of(rows, redact=lambda: without), auth=BASIC) as http:
        made = await http.post(f"{MEMORY}/facts", json={"content": f"use {SECRET}"})
        assert (made.status_code, made.json()["content"]) == (HTTPStatus.CREATED, f"use {REDACTED}")
        number = made.json()["id"]
        changed = await http.patch(f"{MEMORY}/facts/{number}", json={"content": f"not {SECRET}"})
        assert changed.json()["content"] == f"not {REDACTED}"
        kept = await http.put(f"{MEMORY}/state/key", json={"value": SECRET})
        assert kept.json()["value"] == REDACTED


async def test_a_prompt_is_kept_as_it_leaves(rows: JobRows) -> None:
    job_id, inner = rows.add("hello"), Scripted(response_of("yes"))
    request = request_of(f"my key is {SECRET}")
    request = request.model_copy(update={"key": request.key.model_copy(update={"job_id": job_id})})
    await RequestChanges(recorder(rows, inner), Redaction(lambda: without)).complete(request)
    assert inner.asked[0].messages[-1].content == f"my key is {REDACTED}"
    with rows.store.view() as tx:
        (call,) = tx.llm.calls.list_calls_of_job(job_id)
        kept = StoredRequest.model_validate_json(tx.llm.prompts.read_text(call.request))
        assert tx.llm.prompts.restore_messages(kept.turns) == inner.asked[0].messages


async def test_prompts_leave_as_they_are_where_nobody_wants_them_scanned() -> None:
    inner, request = Scripted(response_of("yes")), request_of(SECRET)
    await RequestChanges(inner, Redaction(lambda: keep_text)).complete(request)
    assert inner.asked == [request]


def compaction(rows: JobRows, inner: Scripted, prompts: Redact) -> CompactionActivities:
    rules = ModelRules(lambda _: 8_192, OneTool(), 1_000, redact=without, redact_prompts=prompts)
    asking = replay_guard(rows.store, RequestChanges(recorder(rows, inner), Redaction(lambda: prompts)))
    return CompactionActivities(rows.store, asking, lambda: rules)


@pytest.mark.parametrize("prompts", [keep_text, without], ids=["prompts as they are", "prompts scanned"])
async def test_a_compaction_keeps_no_secret_and_buys_nothing_twice(
    prompts: Callable[[str], str], rows: JobRows
) -> None:
    spoken = Spoken(rows)
    for number in range(8):
        last = await spoken.answered(f"{number}: the key is {SECRET}", f"noted {SECRET}")
    step = StepRef(job_id=last, step="compaction")
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(step, "compact_conversation", 1)
    facts = Scripted(response_of(f"[MEMORY:sticky] The key is {SECRET} [/MEMORY]"), ModelTimeout("no"))
    with pytest.raises(ModelTimeout):
        await compaction(rows, facts, prompts).compact_conversation(step)
    assert remembered(rows) == [f"The key is {REDACTED}"]
    summary = Scripted(response_of(f"They spoke of {SECRET}."))
    later = spoken.prepared("one more")  # another job takes up what the first could not finish
    again = StepRef(job_id=later, step="compaction")
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(again, "compact_conversation", 1)
    await compaction(rows, summary, prompts).compact_conversation(again)
    assert [request.key.purpose for request in summary.asked] == ["summary"]
    assert any(SECRET in message.content for message in facts.asked[0].messages) is (prompts is keep_text)
    with rows.store.view() as tx:
        (kept,) = tx.conversations.compactions.list_latest_compactions(tx.jobs.get(later).conversation_id or 0, 3)
    assert kept.summary == f"They spoke of {REDACTED}."


def test_neither_a_text_nor_what_is_said_below_a_file_goes_out_with_a_secret(rows: JobRows, tmp_path: Path) -> None:
    bench, platform = Bench(rows, tmp_path), Platform(Idempotency.NATIVE)
    platform.capabilities = replace(platform.capabilities, max_file_bytes=10)
    bench.redact = without
    bench.answer(f"use {SECRET}")
    bench.file(f"{SECRET}.txt", 3, f"or {SECRET}")
    assert bench.deliver(platform) is None
    said = [(post.filename, post.content) for post in platform.posts]
    assert said == [("", f"use {REDACTED}"), (f"{REDACTED}.txt", f"or {REDACTED}")]


def test_a_button_that_shows_a_secret_is_left_out() -> None:
    fine = Button(label="Blue", value="Blue #7")
    words = OutgoingContent("which?", (), (Button(label=SECRET, value=f"{SECRET} #7"), fine)).redact_secrets(without)
    assert words.buttons == [fine]
