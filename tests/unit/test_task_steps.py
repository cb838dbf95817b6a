"""Steps of jobs that agents gave each other, over a store: what is not acted on, and what people are not told twice."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from activities.closing import ClosingActivities
from activities.conversations import TagActivities
from activities.tags import ActingRules
from maestro.domain.agents.agent import Agent, MemoryScope
from maestro.domain.errors import Stopped, WaitReason
from maestro.domain.jobs.flow import AnswerStep, ParkStep
from maestro.domain.jobs.job import CANCELLED_NOTICE, Job, JobEnding, JobKind, JobStatus, StepRef, Wait
from maestro.domain.jobs.steps import WAITING_NOTICE
from maestro.domain.settings.jobs import ScheduleSettings
from maestro.operations.jobs import stop_job
from tests.support.job_rows import JobRows
from tests.support.spoken import NoTyping, Spoken


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """A store with two agents."""
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        tx.agents.save_agent(Agent(slug="bob", name="Bob", created_at=tx.now, updated_at=tx.now))
    yield rows
    rows.store.close()


async def test_an_answer_does_not_act_after_a_stop_that_came_as_the_step_began(rows: JobRows) -> None:
    job_id = await Spoken(rows).answered("hello", "[DELEGATE:bob]one[/DELEGATE]")
    step = AnswerStep(job_id=job_id, step="tags", number=1)
    with rows.store.begin() as tx:
        tx.jobs.request_stop(job_id)
        tx.jobs.steps.start_attempt(step, "record_answer", 1)
    with pytest.raises(Stopped):
        TagActivities(rows.store, lambda: ActingRules(MemoryScope.AGENT, frozenset()), lambda: None).record_answer(step)
    with rows.store.view() as tx:
        assert [task.task for task in tx.jobs.delegations.list_children(job_id)] == ["one"]


async def test_a_stop_since_the_job_was_read_is_noticed_where_an_answer_without_a_conversation_is_noted(
    rows: JobRows,
) -> None:
    job_id = await Spoken(rows).answered("hello")
    step = AnswerStep(job_id=job_id, step="tags", number=1)
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(step, "record_answer", 1)
        tx.jobs.update_job(job_id, conversation_id=None)
        known = tx.jobs.read(job_id)
        tx.jobs.request_stop(job_id)
    tags = TagActivities(rows.store, lambda: ActingRules(MemoryScope.AGENT, frozenset()), lambda: None)
    with rows.store.begin() as tx:
        tx.jobs.cache_value(known)
        with pytest.raises(Stopped):
            tags.record_answer(step)


def given(rows: JobRows, by: str, name: str) -> str:
    """Have a job give a task, and return it once it is worked on."""
    with rows.store.begin() as tx:
        asked = tx.jobs.get(by)
        place = asked.address.model_dump()
        kind, inbox_id = JobKind.DELEGATION, asked.inbox_id
        tx.jobs.add(Job(id=name, kind=kind, inbox_id=inbox_id, parent_id=by, task="count", created_at=tx.now, **place))
        tx.jobs.mark_started(name)
    return name


def parked(rows: JobRows, job_id: str) -> None:
    """Let a job find that every account has to be left alone."""
    model, park = StepRef(job_id=job_id, step="model-1"), ParkStep(job_id=job_id, step="park-1", steps=("model-1",))
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(model, "call_model", 1)
        wait = Wait(reason=WaitReason.ACCOUNT, wake_at=tx.now + timedelta(minutes=5))
        tx.jobs.steps.suspend_attempt(model, "AccountsExhausted", "", wait)
        tx.jobs.steps.start_attempt(park, "park_job", 1)
    assert (
        ClosingActivities(rows.store, NoTyping(), lambda: None, ScheduleSettings).park_job(park).status
        is JobStatus.WAITING
    )


def notices(rows: JobRows) -> int:
    """Count how often people were told that they have to wait."""
    with rows.store.view() as tx:
        return sum(
            tx.jobs.read(one.id).notice.startswith(WAITING_NOTICE) for one in tx.jobs.list_claimable_jobs(50, tx.now)
        )


def test_one_notice_for_all_tasks_of_a_channel_that_wait_for_an_account(rows: JobRows) -> None:
    root, elsewhere = rows.add("hello"), rows.add("hello", platform="slack")
    for job_id in (root, elsewhere):
        rows.end(job_id, JobStatus.COMPLETED)
    for name in ("one", "two"):
        parked(rows, given(rows, root, name))
    assert notices(rows) == 1
    behind = rows.add("and me?")
    with rows.store.begin() as tx:
        tx.jobs.mark_started(behind)
    parked(rows, behind)
    assert notices(rows) == 1, "a message of the same lane knows from the tasks"
    parked(rows, given(rows, elsewhere, "three"))
    assert notices(rows) == 2


def test_one_notice_for_all_messages_of_a_channel_that_an_operator_cancels(rows: JobRows) -> None:
    answered, first, second, stopped = (rows.add(text) for text in ("answered", "first", "second", "stopped"))
    elsewhere, cron = rows.add("hello", platform="slack"), rows.add(kind=JobKind.CRON)
    rows.end(answered, JobStatus.COMPLETED)
    with rows.store.begin() as tx:
        for job_id in (first, second, elsewhere, cron):
            stop_job(tx, job_id, "grace")
        tx.jobs.close_job(stopped, JobEnding(status=JobStatus.CANCELLED, reason="stopped by a person"))
    with rows.store.view() as tx:
        notices = [tx.jobs.read(one.id) for one in tx.jobs.list_claimable_jobs(50, tx.now)]
    assert [(job.platform, job.notice) for job in notices] == [("web", CANCELLED_NOTICE), ("slack", CANCELLED_NOTICE)]
