"""The journal of steps: what it says of an attempt that was refused before it began."""

from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.errors import JobEnded, LaneTaken, MaestroError, Stopped, WaitReason
from maestro.domain.jobs.job import Ending, Job, JobStatus, StepRef, Wait
from maestro.domain.jobs.retries import RetryRules
from maestro.domain.llm.errors import AccountsExhausted, ProviderUnavailable
from maestro.domain.messages import LaneKey
from maestro.store.store import Store
from temporal.journal import Journal
from tests.support.fresh_store import fresh_store

RULES = RetryRules(
    provider_attempts=3, provider_base=1, platform_attempts=10, platform_base=1, own_attempts=5, crashes=10
)
REF = StepRef(job_id="job", step="context")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = fresh_store(tmp_path / "maestro.db")
    with opened.begin() as tx:
        tx.jobs.add(Job(id="job", platform="web", account="default", channel="c", created_at=tx.now))
    return opened


def refused(store: Store) -> tuple[MaestroError, bool]:
    """Begin a step that must not begin; return why, and whether Temporal is told to try again."""
    journal = Journal(store, lambda: RULES)
    with pytest.raises(MaestroError) as refusal:
        journal.begin(REF, "build_context")
    failure = journal.failed(REF, refusal.value)
    assert failure.type == type(refusal.value).__name__
    return refusal.value, not failure.non_retryable


def test_a_stop_between_two_steps_is_final(store: Store) -> None:
    with store.begin() as tx:
        tx.jobs.request_stop("job")
    error, again = refused(store)
    assert isinstance(error, Stopped)
    assert not again
    with store.view() as tx:
        assert not tx.steps.of("job")


def test_a_step_of_an_ended_job_is_final(store: Store) -> None:
    with store.begin() as tx:
        tx.close_job("job", Ending(status=JobStatus.CANCELLED))
    error, again = refused(store)
    assert isinstance(error, JobEnded)
    assert not again


def test_a_job_back_from_its_wait_does_not_run_beside_one_that_was_started_meanwhile(store: Store) -> None:
    journal, lane = Journal(store, lambda: RULES), LaneKey("web/default/lane")
    old, new = StepRef(job_id="old", step="route"), StepRef(job_id="new", step="route")
    with store.begin() as tx:
        for name in ("old", "new"):
            tx.jobs.add(Job(id=name, lane=lane, platform="web", account="default", channel="lane", created_at=tx.now))
        tx.jobs.started("old")
        tx.jobs.park("old", Wait(reason=WaitReason.PERSON))
        tx.jobs.wake("old")
        assert "new" in [job.id for job in tx.jobs.claim(10, tx.now)], "its workflow is started now"
    with store.begin() as tx:
        tx.jobs.go_on()
        assert "old" in [job.id for job in tx.jobs.claim(10, tx.now)], "it has the earlier turn"
    assert journal.begin(new, "choose_agent") is None
    with pytest.raises(LaneTaken) as refusal:
        journal.begin(old, "choose_agent")
    assert not journal.failed(old, refusal.value).non_retryable
    with store.begin() as tx:
        tx.close_job("new", Ending(status=JobStatus.COMPLETED))
    assert journal.begin(old, "choose_agent") is None


def test_what_failed_often_enough_waits_where_there_is_something_to_wait_for(store: Store) -> None:
    journal, step, soon = Journal(store, lambda: RULES), StepRef(job_id="job", step="model-1"), timedelta(minutes=5)
    failure = ProviderUnavailable("down")
    failure.instead = AccountsExhausted("limited")
    with store.view() as tx:
        failure.instead.wake_at = tx.now + soon
    told = []
    for _ in range(RULES.provider_attempts):
        journal.begin(step, "call_model")
        told.append(journal.failed(step, failure))
    assert [(one.type, one.non_retryable) for one in told] == [
        ("ProviderUnavailable", False),
        ("ProviderUnavailable", False),
        ("AccountsExhausted", True),
    ]
    with store.view() as tx:
        assert tx.steps.waits("job", ["model-1"]) == [Wait(reason=WaitReason.ACCOUNT, wake_at=failure.instead.wake_at)]
