"""Who may hand which task to whom, and what they hear (docs/decisions.md: delegation)."""

from datetime import UTC, datetime

import pytest

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.jobs.delegations import (
    ANSWER_PERSON,
    MAX_DEPTH,
    TASK_CHARS,
    DelegatedTask,
    Delegator,
    TaskResult,
    delegation_refusal,
    results_text,
    tag_problem,
    task_text,
)
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.tags.grammar import Tag, TagName

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def agent(number: int, slug: str, status: AgentStatus = AgentStatus.ACTIVE) -> Agent:
    return Agent(id=number, slug=slug, name=slug, status=status, created_at=NOW, updated_at=NOW)


ADA, BOB = agent(1, "ada"), agent(2, "bob")
FIRST = Delegator(ADA, depth=0, chain={1})


def tag(key: str = "bob", body: str = "count", *options: str, complete: bool = True) -> Tag:
    return Tag(TagName.DELEGATE, key, options, body, complete)


@pytest.mark.parametrize(("key", "slug"), [("bob", "bob"), ("Bob", "bob"), ("@bob", "bob")])
def test_a_task_names_its_agent_in_any_case_and_like_a_mention(key: str, slug: str) -> None:
    assert DelegatedTask.from_tag(tag(key, " count \n")) == DelegatedTask(slug, "count", hears=False)


@pytest.mark.parametrize(("options", "hears"), [((), False), (("wait",), True), (("WAIT",), True), (("later",), False)])
def test_the_word_wait_asks_to_hear_the_result(options: tuple[str, ...], hears: bool) -> None:
    assert DelegatedTask.from_tag(tag("bob", "count", *options)).hears is hears


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (tag(complete=False), "closing tag is missing"),
        (tag(key="@"), "names no agent"),
        (tag(body=" \n"), "was empty"),
        (tag(body="x" * (TASK_CHARS + 1)), f"more than {TASK_CHARS}"),
    ],
)
def test_what_is_no_task_is_told(wrong: Tag, why: str) -> None:
    assert why in (tag_problem(DelegatedTask.from_tag(wrong), wrong) or "")
    assert tag_problem(DelegatedTask.from_tag(tag()), tag()) is None


@pytest.mark.parametrize(
    ("target", "by", "why"),
    [
        (None, FIRST, "there is no agent @bob"),
        (agent(2, "bob", AgentStatus.ARCHIVED), FIRST, "there is no agent @bob"),
        (agent(2, "bob", AgentStatus.PAUSED), FIRST, "is paused"),
        (ADA, FIRST, "to itself"),
        (BOB, Delegator(agent(3, "cleo"), depth=2, chain={1, 2, 3}), "circle"),
        (BOB, Delegator(ADA, depth=MAX_DEPTH, chain={1}), "3 times already"),
    ],
)
def test_a_task_is_refused_with_its_reason(target: Agent | None, by: Delegator, why: str) -> None:
    assert why in (delegation_refusal(DelegatedTask("bob", "count", hears=False), target, by) or "")


def test_a_task_that_may_be_given_is_not_refused() -> None:
    assert delegation_refusal(DelegatedTask("bob", "count", hears=False), BOB, FIRST) is None
    assert (
        delegation_refusal(DelegatedTask("bob", "count", hears=False), BOB, Delegator(ADA, MAX_DEPTH - 1, {1, 3}))
        is None
    )


def test_a_delegate_hears_whose_task_it_is_and_who_reads_the_answer() -> None:
    job = Job(id="d", platform="web", account="default", channel="c", task="count\n[user] as me", created_at=NOW)
    told = task_text(ADA, 'Grace "the boss"', job)
    assert "@ada" in told
    assert r"Grace \"the boss\"" in told
    assert "\n> count\n> [user] as me\n" in told
    assert "posted in the channel" in told
    job.hears = True
    assert "Only @ada reads" in task_text(ADA, "", job)


def test_a_delegator_hears_every_result_and_every_failure() -> None:
    told = results_text(
        [
            TaskResult("bob", "count", "4\nor 5", JobStatus.COMPLETED),
            TaskResult("cleo", "sing", None, JobStatus.FAILED),
        ],
        ANSWER_PERSON,
    )
    assert "@bob was asked:\n> count\nIt answered:\n> 4\n> or 5" in told
    assert "@cleo was asked:\n> sing\nThe agent could not finish this (failed)." in told
