"""Work that no person began, over a store: what came of it shows no typing, silence holds, a restart is one."""

from collections.abc import Collection, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from activities.questions import AskingRules, ask_question
from activities.routing import RoutingActivities
from maestro.domain.agents.agent import Agent
from maestro.domain.errors import Conflict
from maestro.domain.jobs.flow import ToolStep
from maestro.domain.jobs.job import Job, JobKind, JobStatus, StepRef
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.messages import Address, lane_key
from maestro.operations.jobs import JobOperations
from maestro.tools.base import ToolQuestion
from tests.support.api_client import no_temporal
from tests.support.doors import open_access
from tests.support.job_rows import JobRows
from tests.support.spoken import NoTyping, Spoken


class Typing(NoTyping):
    """Shows typing wherever it is asked to."""

    def start_indicator(self, job_id: str, address: Address, message_ids: Collection[str] = ()) -> bool:
        return True


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """A store with two agents."""
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        tx.agents.save_agent(Agent(slug="bob", name="Bob", created_at=tx.now, updated_at=tx.now))
    yield rows
    rows.store.close()


def beat(rows: JobRows) -> str:
    """Add a heartbeat of ada that runs."""
    job_id = rows.add(kind=JobKind.HEARTBEAT)
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, task="Look at the pump.", lane=None, turn=None)
        tx.jobs.mark_started(job_id)
    return job_id


def given(rows: JobRows, by: str, *, hears: bool) -> str:
    """Have a job give bob a task."""
    with rows.store.begin() as tx:
        job, bob = tx.jobs.read(by), tx.agents.find_agent_by_slug("bob")
        task = Job(
            id=f"{by}-task",
            kind=JobKind.DELEGATION,
            inbox_id=job.inbox_id,
            agent_id=bob.id if bob else None,
            parent_id=by,
            task="count",
            hears=hears,
            created_at=tx.now,
            **job.address.model_dump(),
        )
        return str(tx.jobs.add(task).id)


@pytest.mark.parametrize("person", [True, False])
def test_only_who_was_asked_shows_typing(rows: JobRows, *, person: bool) -> None:
    step = StepRef(job_id=given(rows, rows.add() if person else beat(rows), hears=False), step="take-up")
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(step, "take_up", 1)
    taken = RoutingActivities(rows.store, Typing(), open_access).take_up(step)
    assert (taken.asked, taken.typing) == (person, person)


def continued(rows: JobRows, by: str) -> str:
    """Let a task end of which its delegator hears, and return the job in which that one goes on."""
    rows.end(given(rows, by, hears=True), JobStatus.FAILED)
    with rows.store.begin() as tx:
        (job_id,) = (job.id for job in tx.jobs.delegations.list_children(by) if not job.task)
        tx.jobs.mark_started(job_id)
    return job_id


async def test_who_goes_on_with_results_may_have_nothing_to_tell(rows: JobRows) -> None:
    spoken = Spoken(rows)
    job_id = continued(rows, beat(rows))
    asked = spoken.built_prompt(job_id)
    assert "no user is waiting for you" in asked
    assert "answer only [SILENT]" in asked
    await spoken.answer(job_id, "[SILENT]")
    with rows.store.view() as tx:
        job = tx.jobs.read(job_id)
    assert (job.status, job.said) == (JobStatus.COMPLETED, "")


async def test_a_delegate_that_another_agent_hears_says_what_it_says(rows: JobRows) -> None:
    spoken = Spoken(rows)
    job_id = given(rows, beat(rows), hears=True)
    with rows.store.begin() as tx:
        tx.jobs.mark_started(job_id)
    assert "[SILENT]" not in spoken.built_prompt(job_id)
    await spoken.answer(job_id, "[SILENT]")
    with rows.store.view() as tx:
        assert tx.jobs.read(job_id).said == "[SILENT]"


async def test_work_that_nobody_asked_for_is_restarted_once_as_well(rows: JobRows) -> None:
    control = JobOperations(rows.store, no_temporal)
    failed = rows.end(beat(rows), JobStatus.FAILED)
    again = await control.replay(failed, ReplayMode.RESTART, "operator")
    with pytest.raises(Conflict, match=f"the task of job {failed} is answered by job {again} now, which is pending"):
        await control.replay(failed, ReplayMode.RESTART, "operator")
    rows.end(again, JobStatus.COMPLETED)
    with pytest.raises(Conflict, match=f"{again} now, which is completed"):
        await control.replay(failed, ReplayMode.RESUME, "operator")
    rows.clock.go(seconds=1)
    once_more = await control.replay(failed, ReplayMode.RESTART, "operator")
    with rows.store.view() as tx:
        assert tx.jobs.read(once_more).restarted_from == again


def test_what_it_asks_is_answered_in_its_channel(rows: JobRows) -> None:
    by = beat(rows)
    task, rules = given(rows, by, hears=True), AskingRules(timedelta(days=1))
    with rows.store.begin() as tx:
        tx.jobs.update_job(by, lane="schedule:heartbeat-1")  # of one that makes up for a time
        for place, job_id in enumerate((by, task)):
            step = ToolStep(job_id=job_id, step="tool", number=1, place=place)
            ask_question(tx, tx.jobs.read(job_id), step, ToolQuestion(text="Which pump?"), rules)
        here = lane_key(Address(platform="web", channel="general"), None)
        assert [question.job_id for question in tx.jobs.questions.list_open_questions(here)] == [by, task]
