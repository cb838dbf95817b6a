"""Filters of jobs, and how many there are: one meaning wherever somebody chooses jobs."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.jobs.batch_preview import JobPreview
from maestro.domain.jobs.batches import BatchAction, ItemState, ReplayBatch
from maestro.domain.jobs.filters import JobFilter, group_failures
from maestro.domain.jobs.flow import StatusOutcome
from maestro.domain.jobs.job import JobKind, JobStatus, StepRef
from maestro.domain.llm.budgets import NewClient
from tests.support.job_rows import JobRows


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def found(rows: JobRows, **wanted: object) -> list[str]:
    with rows.store.view() as tx:
        listed, _ = tx.jobs.lists.list_jobs(JobFilter.model_validate(wanted), None, 50)
    return [one.job.id for one in reversed(listed)]


def failing_at(rows: JobRows, step: str, reason: str) -> str:
    """Add a job whose step failed, and whose last steps went well."""
    job_id = rows.add()
    with rows.store.begin() as tx:
        for name in (step, "notice", "close-1"):
            tx.jobs.steps.start_attempt(StepRef(job_id=job_id, step=name), "activity", 1)
            if name == "notice":
                tx.jobs.steps.fail_attempt(StepRef(job_id=job_id, step=name), "SendFailed", "")
            elif name != step:
                tx.jobs.steps.finish_step(StepRef(job_id=job_id, step=name), StatusOutcome(status=JobStatus.FAILED))
            else:
                tx.jobs.steps.fail_attempt(StepRef(job_id=job_id, step=name), "ProviderDown", reason)
    return rows.end(job_id, JobStatus.FAILED, "ProviderDown", reason)


def test_jobs_are_chosen_by_when_they_were_created(rows: JobRows) -> None:
    first, second, third = rows.add(), rows.add(), rows.add()
    at = rows.clock.now
    assert found(rows, since=at) == [third]
    assert found(rows, until=at) == [first, second]
    assert found(rows, since=at - timedelta(seconds=1), until=at) == [second]


def test_jobs_are_chosen_by_their_place_and_who_pays(rows: JobRows) -> None:
    here, there = rows.add(), rows.add(platform="slack")
    with rows.store.begin() as tx:
        client = tx.users.clients.set_configured(NewClient(name="acme")).id
        tx.jobs.update_job(there, account="second", channel="random", priority=1, client_id=client)
    assert found(rows, account="second") == found(rows, channel="random") == found(rows, priority=1) == [there]
    assert found(rows, client="acme") == [there]
    assert found(rows, account="default", channel="general", priority=5) == [here]
    assert found(rows, client="nobody") == found(rows, conversation=7) == []


def test_jobs_are_chosen_by_the_step_and_the_reason_they_failed_with(rows: JobRows) -> None:
    one = failing_at(rows, "model-1", "account 7 said 50% of 'it'")
    other = failing_at(rows, "deliver", "account 8 said 50x of 'it'")
    assert found(rows, step="model-1") == [one]
    assert found(rows, step="notice") == []
    assert found(rows, reason="account * said *") == [one, other]
    assert found(rows, reason="account * said 50% of *") == [one], "only a star stands for anything"
    assert found(rows, reason="account * said 50_ of *") == []


def test_jobs_are_chosen_by_the_batch_that_began_them(rows: JobRows) -> None:
    begun, refused = rows.failed(), rows.failed()
    with rows.store.begin() as tx:
        batch = ReplayBatch(id="batch-1", action=BatchAction.RESUME, created_at=tx.now)
        tx.jobs.batches.add_batch(batch, [JobPreview(begun, "lane"), JobPreview(refused, "lane")])
        tx.jobs.batches.settle_item(batch.id, 1, ItemState.BEGUN, began=begun)
        tx.jobs.batches.settle_item(batch.id, 2, ItemState.REFUSED, problem="why")
    assert found(rows, batch="batch-1") == [begun]


def test_counts_are_by_status_whatever_status_the_filter_has(rows: JobRows) -> None:
    rows.failed(), rows.failed(), rows.add()
    rows.end(rows.add(kind=JobKind.CRON, agent=None), JobStatus.COMPLETED)
    with rows.store.view() as tx:
        assert tx.jobs.counts.count_by_status(JobFilter()) == {
            JobStatus.FAILED: 2,
            JobStatus.PENDING: 1,
            JobStatus.COMPLETED: 1,
        }
        assert tx.jobs.counts.count_by_status(JobFilter(status=(JobStatus.FAILED,), kind=(JobKind.CRON,))) == {
            JobStatus.COMPLETED: 1
        }


def test_failures_are_grouped_by_error_step_and_pattern(rows: JobRows) -> None:
    many = [failing_at(rows, "model-1", f"no answer within {seconds} s") for seconds in range(20)]
    last = failing_at(rows, "deliver", "the channel is closed")
    rows.end(rows.add(), JobStatus.CANCELLED, "Terminated", "by a person")
    with rows.store.view() as tx:
        newest, group = group_failures(tx.jobs.counts.group_failures(JobFilter())).items
        (cancelled,) = group_failures(tx.jobs.counts.group_failures(JobFilter(status=(JobStatus.CANCELLED,)))).items
    assert (newest.step, newest.reason, newest.count, newest.example) == ("deliver", "the channel is closed", 1, last)
    assert (group.error, group.step, group.reason, group.count) == (
        "ProviderDown",
        "model-1",
        "no answer within * s",
        20,
    )
    assert group.newest - group.oldest == timedelta(seconds=19)
    assert (group.agents, group.example) == (("ada",), many[-1])
    assert (cancelled.error, cancelled.step) == ("Terminated", "")


def test_a_group_is_a_filter_for_its_jobs(rows: JobRows) -> None:
    many = [failing_at(rows, "model-1", f"no answer within {seconds} s") for seconds in range(3)]
    failing_at(rows, "deliver", "no answer within 5 s")
    with rows.store.view() as tx:
        group = next(
            one for one in group_failures(tx.jobs.counts.group_failures(JobFilter())).items if one.step == "model-1"
        )
    assert found(rows, error=group.error, step=group.step, reason=group.reason) == many
