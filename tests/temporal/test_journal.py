"""The journal of steps: what it says of an attempt that was refused before it began."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from pydantic import ValidationError

from maestro.domain.errors import JobEnded, LaneTaken, MaestroError, StepTaken, Stopped, StoreBusy, WaitReason
from maestro.domain.jobs.flow import VoiceOutcome
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, StepRef, Wait
from maestro.domain.jobs.steps import RetryRules
from maestro.domain.llm.calls import AccountsExhausted, CallEstimate, ProviderUnavailable
from maestro.domain.llm.prompts import CallKey, LLMResponse
from maestro.domain.messages import Address, LaneKey
from maestro.domain.tools import ToolRun, ToolState
from maestro.store.jobs.steps import OwnAttempt, TemporalAttempt, use_attempt
from maestro.store.store import Store
from temporal.journal import MOST_FAILURES, Journal
from tests.support.fresh_store import fresh_store, path_of
from tests.support.locking import locked

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
        journal.begin_attempt(REF, "build_context")
    failure = journal.record_failure(REF, refusal.value)
    assert failure.type == type(refusal.value).__name__
    return refusal.value, not failure.non_retryable


def test_a_stop_between_two_steps_is_final(store: Store) -> None:
    with store.begin() as tx:
        tx.jobs.request_stop("job")
    error, again = refused(store)
    assert isinstance(error, Stopped)
    assert not again
    with store.view() as tx:
        assert not tx.jobs.steps.list_attempts_of_job("job")


def test_a_step_of_an_ended_job_is_final(store: Store) -> None:
    with store.begin() as tx:
        tx.jobs.close_job("job", JobEnding(status=JobStatus.CANCELLED))
    error, again = refused(store)
    assert isinstance(error, JobEnded)
    assert not again


def test_a_failure_that_the_store_did_not_take_is_written_by_the_next_attempt_and_is_no_crash(store: Store) -> None:
    impatient = Store(path_of(store), busy_seconds=0.02)
    journal = Journal(impatient, lambda: RULES)
    for _ in range(RULES.crashes + 1):
        begun = journal.begin_attempt(REF, "build_context")
        assert isinstance(begun, OwnAttempt)
        with use_attempt(begun), locked(path_of(store)), pytest.raises(StoreBusy):
            journal.record_failure(REF, StoreBusy("the disk is full"))
    assert isinstance(journal.begin_attempt(REF, "build_context"), OwnAttempt)
    with store.view() as tx:
        assert {(step.state, step.error) for step in tx.jobs.steps.list_attempts_of_job("job")[:-1]} == {
            ("failed", "StoreBusy")
        }
    failure = journal.record_failure(REF, StoreBusy("the disk is full"))
    assert not failure.non_retryable, "a job waits for the store as long as that takes"
    impatient.close()


def test_a_failure_that_is_written_with_a_transaction_that_rolls_back_is_still_no_crash(store: Store) -> None:
    impatient = Store(store.location, busy_seconds=0.02)
    journal = Journal(impatient, lambda: RULES)
    begun = journal.begin_attempt(REF, "build_context")
    assert isinstance(begun, OwnAttempt)
    with use_attempt(begun), locked(path_of(store)), pytest.raises(StoreBusy):
        journal.record_failure(REF, StoreBusy("the disk is full"))
    with suppress(ZeroDivisionError), impatient.begin(job="job"):
        journal.begin_attempt(REF, "build_context")
        raise ZeroDivisionError
    journal.begin_attempt(REF, "build_context")
    with store.view() as tx:
        attempts = tx.jobs.steps.list_attempts_of_job("job")
        assert [attempt.state for attempt in attempts] == ["failed", "running"]
    impatient.close()


def test_a_job_back_from_its_wait_does_not_run_beside_one_that_was_started_meanwhile(store: Store) -> None:
    journal, lane = Journal(store, lambda: RULES), LaneKey("web/default/lane")
    old, new = StepRef(job_id="old", step="route"), StepRef(job_id="new", step="route")
    with store.begin() as tx:
        for name in ("old", "new"):
            tx.jobs.add(Job(id=name, lane=lane, platform="web", account="default", channel="lane", created_at=tx.now))
        tx.jobs.mark_started("old")
        tx.jobs.park_job("old", Wait(reason=WaitReason.PERSON))
        tx.jobs.wake_job("old")
        assert "new" in [job.id for job in tx.jobs.claim_jobs(10, tx.now)], "its workflow is started now"
    with store.begin() as tx:
        tx.jobs.resume_due()
        assert "old" in [job.id for job in tx.jobs.claim_jobs(10, tx.now)], "it has the earlier turn"
    assert isinstance(journal.begin_attempt(new, "choose_agent"), OwnAttempt)
    with pytest.raises(LaneTaken) as refusal:
        journal.begin_attempt(old, "choose_agent")
    assert not journal.record_failure(old, refusal.value).non_retryable
    with store.begin() as tx:
        tx.jobs.close_job("new", JobEnding(status=JobStatus.COMPLETED))
    assert isinstance(journal.begin_attempt(old, "choose_agent"), OwnAttempt)


def test_a_failed_attempt_is_one_line_with_its_job_and_a_fault_has_its_traceback(store: Store) -> None:
    journal, words = Journal(store, lambda: RULES), "what a person said"
    with pytest.raises(ValidationError) as fault:
        StepRef.model_validate({"job_id": [words], "step": "context"})
    errors = (ProviderUnavailable("down"), AccountsExhausted("limited"), Stopped("by a person"), fault.value)
    with structlog.testing.capture_logs() as lines:
        for error in errors:
            journal.begin_attempt(REF, "build_context")
            journal.record_failure(REF, error)
    assert [(line["event"], line["error"], line.get("exc_info") is not None) for line in lines] == [
        ("step.failed", "ProviderUnavailable", False),
        ("step.waits", "AccountsExhausted", False),
        ("step.unwanted", "Stopped", False),
        ("step.failed", "ValidationError", True),
    ]
    assert {(line["job"], line["step"]) for line in lines} == {("job", "context")}
    assert lines[-1]["exc_info"] is fault.value
    assert words not in str([{**line, "exc_info": None} for line in lines]), "a fault may quote messages and prompts"


def test_what_failed_often_enough_waits_where_there_is_something_to_wait_for(store: Store) -> None:
    journal, step, soon = Journal(store, lambda: RULES), StepRef(job_id="job", step="model-1"), timedelta(minutes=5)
    failure = ProviderUnavailable("down")
    failure.instead = AccountsExhausted("limited")
    with store.view() as tx:
        failure.instead.wake_at = tx.now + soon
    told = []
    for _ in range(RULES.provider_attempts):
        journal.begin_attempt(step, "call_model")
        told.append(journal.record_failure(step, failure))
    assert [(one.type, one.non_retryable) for one in told] == [
        ("ProviderUnavailable", False),
        ("ProviderUnavailable", False),
        ("AccountsExhausted", True),
    ]
    with store.begin() as tx:
        tx.jobs.update_job("job", status=JobStatus.RUNNING)
        for _ in range(MOST_FAILURES - RULES.provider_attempts):
            tx.jobs.steps.start_attempt(step, "call_model", 2)
            tx.jobs.steps.fail_attempt(step, "ProviderUnavailable", "")
    journal.begin_attempt(step, "call_model")
    assert journal.record_failure(step, failure).type == "ProviderUnavailable", "not for ever"
    with store.view() as tx:
        assert tx.jobs.steps.list_waits("job", ["model-1"]) == [
            Wait(reason=WaitReason.ACCOUNT, wake_at=failure.instead.wake_at)
        ]


# Two processes that hold the same step: one stalled, and Temporal gave the step to the other


MODEL = StepRef(job_id="job", step="model-1")
KEY = CallKey(job_id="job", number=1)
ESTIMATE = CallEstimate("openai", "gpt", input_tokens=10, cost_usd=0.5)
FIRST, SECOND = TemporalAttempt("run", 1), TemporalAttempt("run", 2)


class Temporal:
    """What Temporal says of the running attempt."""

    tried = FIRST


def begun(journal: Journal, tried: TemporalAttempt) -> OwnAttempt:
    """Begin an attempt at a model call."""
    attempt = begun_or_held(journal, tried)
    assert isinstance(attempt, OwnAttempt)
    return attempt


def begun_or_held(journal: Journal, tried: TemporalAttempt) -> str | OwnAttempt:
    """Begin an attempt at a model call, or return what the finished step returned."""
    Temporal.tried = tried
    return journal.begin_attempt(MODEL, "call_model")


def answer(text: str) -> LLMResponse:
    """Return what a model said."""
    return LLMResponse(content=text, model="gpt", provider="openai", account="main", duration_ms=5)


def states(store: Store) -> tuple[list[str], list[str]]:
    """Return how the attempts at the step stand, and the requests to the model."""
    with store.view() as tx:
        return [step.state.value for step in tx.jobs.steps.list_attempts_of_job("job")], [
            call.state.value for call in tx.llm.calls.list_calls_of_job("job")
        ]


def send(store: Store, attempt: OwnAttempt) -> int:
    """Note a request as this attempt."""
    with use_attempt(attempt), store.begin() as tx:
        return tx.llm.calls.record_sending(KEY, "digest", ESTIMATE)


def test_a_stalled_attempt_neither_calls_nor_ends_what_the_newer_one_does(store: Store) -> None:
    journal = Journal(store, lambda: RULES, lambda: Temporal.tried)
    stalled, newer = begun(journal, FIRST), begun(journal, SECOND)
    assert send(store, newer) == 1
    with pytest.raises(StepTaken) as refusal:
        send(store, stalled)
    with use_attempt(stalled):
        assert not journal.record_failure(MODEL, refusal.value).non_retryable
        journal.record_failure(MODEL, ProviderUnavailable("down"))
    assert states(store) == (["interrupted", "running"], ["sent"])
    with use_attempt(newer), store.begin() as tx:
        tx.llm.calls.store_answer(KEY, 1, answer("once"))


def test_a_newer_attempt_takes_over_the_call_of_a_stalled_one_whose_answer_still_counts(store: Store) -> None:
    journal = Journal(store, lambda: RULES, lambda: Temporal.tried)
    stalled = begun(journal, FIRST)
    assert send(store, stalled) == 1
    newer = begun(journal, SECOND)
    assert send(store, newer) == 2
    with use_attempt(stalled), store.begin() as tx:
        tx.llm.calls.store_answer(KEY, 1, answer("late"))
        tx.jobs.steps.finish_step(MODEL, VoiceOutcome(voices=0, transcribed=0))
    assert states(store) == (["interrupted", "done"], ["answered", "sent"])
    with use_attempt(newer), store.begin() as tx, pytest.raises(StepTaken):
        tx.jobs.steps.finish_step(MODEL, VoiceOutcome(voices=0, transcribed=0))
    assert isinstance(begun_or_held(journal, SECOND), str), "a repeat finds the result"


def test_an_attempt_that_begins_too_late_is_refused(store: Store) -> None:
    journal = Journal(store, lambda: RULES, lambda: Temporal.tried)
    begun(journal, SECOND)
    with pytest.raises(StepTaken) as refusal:
        begun(journal, FIRST)
    assert not journal.record_failure(MODEL, refusal.value).non_retryable
    assert states(store)[0] == ["running"]
    begun(journal, TemporalAttempt("run", 3))
    begun(journal, TemporalAttempt("after a reset", 1))
    assert states(store)[0] == ["interrupted", "interrupted", "running"]


def test_an_attempt_of_an_earlier_run_of_the_job_is_refused(store: Store) -> None:
    journal = Journal(store, lambda: RULES, lambda: Temporal.tried)
    Temporal.tried = FIRST
    journal.begin_attempt(REF, "build_context")
    with store.begin() as tx:
        tx.jobs.restart_workflow(tx.jobs.get("job"))
    resumed = begun(journal, TemporalAttempt("resumed", 1))
    assert send(store, resumed) == 1
    with pytest.raises(StepTaken):
        begun(journal, TemporalAttempt("run", 9))
    assert states(store)[0] == ["running", "running"]


def test_a_stalled_attempt_sends_no_chunk_and_makes_no_tool_call(store: Store) -> None:
    journal = Journal(store, lambda: RULES, lambda: Temporal.tried)
    stalled = begun(journal, FIRST)
    begun(journal, SECOND)
    with use_attempt(stalled), store.begin() as tx:
        call = ToolRun(
            job_id="job", number=1, place=0, tool="note", arguments="", state=ToolState.WAITING, started_at=tx.now
        )
        with pytest.raises(StepTaken):
            tx.deliveries.mark_sending(1, Address(platform="web", channel="general"))
        with pytest.raises(StepTaken):
            tx.jobs.tool_runs.begin_tool_run(call)
