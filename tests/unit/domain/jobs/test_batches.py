"""Many jobs at once: what would become of each, whose turn it is, and which failures are of one kind."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from maestro.domain.jobs.batch_preview import (
    BatchCandidate,
    CallAttempt,
    JobPreview,
    JobPreviews,
    Prices,
    build_batch_preview,
    calls_to_pay,
    continuation_step,
)
from maestro.domain.jobs.batches import (
    AT_ONCE,
    IN_A_LANE,
    BatchAction,
    BatchProgress,
    BatchRequest,
    ItemState,
    ReplayBatch,
    batch_view,
    estimated_end,
    next_positions,
)
from maestro.domain.jobs.filters import PATTERN_CHARS, FailureCount, JobFilter, error_pattern, group_failures
from maestro.domain.jobs.flow import RouteAction, RouteOutcome
from maestro.domain.jobs.job import Job, JobEdits, JobStatus, StepState
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import CallPurpose

NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)
RESUME, RESTART, CANCEL = BatchAction.RESUME, BatchAction.RESTART, BatchAction.CANCEL


def job(job_id: str = "message-1", status: JobStatus = JobStatus.FAILED, **more: Any) -> Job:
    fields: dict[str, Any] = {"inbox_id": 1, "lane": "web/general", "agent_id": 1, **more}
    return Job(id=job_id, status=status, platform="web", account="default", channel="general", created_at=NOW, **fields)


def call(
    number: int = 1,
    state: CallState = CallState.ANSWERED,
    *,
    asks_tools: bool = False,
    cost: float | None = 0.5,
    purpose: CallPurpose = CallPurpose.ANSWER,
) -> CallAttempt:
    return CallAttempt(purpose, number, state, asks_tools, cost)


def prospect(one: Job, *calls: CallAttempt, newest: Job | None = None) -> BatchCandidate:
    return BatchCandidate(job=one, newest=newest or one, calls=calls, step=("model-1", StepState.FAILED))


# Which begin now


def test_a_batch_begins_few_jobs_at_a_time() -> None:
    waiting = [(place, f"lane-{place}") for place in range(1, 200)]
    assert next_positions(waiting, []) == list(range(1, AT_ONCE + 1))
    assert next_positions(waiting, ["", "a", "b"]) == list(range(1, AT_ONCE - 2))
    assert next_positions(waiting, ["a"] * (AT_ONCE + 1)) == []


def test_in_one_lane_a_batch_begins_so_few_that_who_writes_now_is_soon_next() -> None:
    waiting = [*((place, "busy") for place in range(1, 10)), (10, "calm"), (11, ""), (12, ""), (13, "")]
    assert next_positions(waiting, []) == [*range(1, IN_A_LANE + 1), 10, 11, 12, 13]
    assert next_positions(waiting, ["busy"] * IN_A_LANE) == [10, 11, 12, 13]


# What is paid


@pytest.mark.parametrize(
    ("action", "calls", "paid"),
    [
        (RESUME, [], 1),
        (RESUME, [call()], 0),
        (RESUME, [call(state=CallState.FAILED)], 1),
        (RESUME, [call(state=CallState.INTERRUPTED), call()], 0),
        (RESUME, [call(asks_tools=True)], 1),
        (RESUME, [call(asks_tools=True), call(2)], 0),
        (RESUME, [call(asks_tools=True), call(2, CallState.FAILED)], 1),
        (RESUME, [call(7, purpose=CallPurpose.FACTS)], 1),
        (RESTART, [], 1),
        (RESTART, [call(asks_tools=True), call(2), call(7, purpose=CallPurpose.SUMMARY)], 3),
        (RESTART, [call(state=CallState.FAILED), call(state=CallState.FAILED)], 1),
        (CANCEL, [], 0),
    ],
)
def test_only_answers_that_nobody_holds_are_paid_for(action: BatchAction, calls: list[CallAttempt], paid: int) -> None:
    assert calls_to_pay(action, job(), calls) == paid


def test_what_maestro_itself_says_costs_nothing() -> None:
    assert calls_to_pay(RESUME, job(notice="Sorry."), []) == 0


def test_the_cost_is_that_of_the_job_itself_else_of_its_agent_else_of_all() -> None:
    prices = Prices(agents={1: 0.25}, models={"dear": 8.0}, overall=2.0)

    def cost(one: BatchCandidate, action: BatchAction = RESTART, edits: JobEdits | None = None) -> float | None:
        return JobPreviews(action, prices, edits or JobEdits()).preview_job(one).cost_usd

    assert cost(prospect(job(), call(cost=0.5), call(2, cost=1.0))) == 1.5
    assert cost(prospect(job(), call(cost=None))) == 0.25
    assert cost(prospect(job(agent_id=7))) == 2.0
    assert cost(prospect(job(), call()), edits=JobEdits(model="dear")) == 8.0
    assert cost(prospect(job(), call()), edits=JobEdits(model="unheard-of")) is None
    assert cost(prospect(job(), call()), RESUME) == 0.0


def test_with_another_agent_it_costs_what_that_one_costs() -> None:
    prices = Prices(agents={1: 0.25, 2: 4.0})
    assert (
        JobPreviews(RESTART, prices, JobEdits(agent="bob"), {"bob": 2}).preview_job(prospect(job(), call())).cost_usd
        == 4.0
    )


# What becomes of each job


def standing(step: str, state: StepState, done: dict[str, str] | None = None) -> BatchCandidate:
    one = job()
    return BatchCandidate(job=one, newest=one, step=(step, state), done=done or {})


def test_the_step_is_the_one_that_did_not_end_well_else_the_one_after_what_is_done() -> None:
    routed = {"route": RouteOutcome(action=RouteAction.ANSWER, agent="ada").model_dump_json()}
    assert continuation_step(RESUME, standing("deliver", StepState.FAILED)) == "deliver"
    assert continuation_step(RESUME, standing("route", StepState.DONE, routed)) == "conversation"
    assert continuation_step(RESUME, standing("media", StepState.FAILED, routed)) == "conversation", (
        "it does without the files"
    )
    assert continuation_step(RESUME, BatchCandidate(job=job(), newest=job())) == "route"
    assert continuation_step(RESTART, standing("deliver", StepState.FAILED)) == "start"
    assert continuation_step(CANCEL, standing("model-1", StepState.RUNNING)) == "model-1"
    assert continuation_step(CANCEL, BatchCandidate(job=job(), newest=job())) == "start"


def test_a_message_is_restarted_once_even_when_two_of_its_jobs_match() -> None:
    newer = job("message-2")
    outlooks = JobPreviews(RESTART, Prices())
    assert outlooks.preview_job(prospect(job("message-1"), newest=newer)).problem == ""
    assert "message-1 of this batch" in outlooks.preview_job(prospect(newer)).problem
    assert outlooks.preview_job(prospect(job("message-3"))).problem == ""


def test_only_open_jobs_are_cancelled() -> None:
    outlooks = JobPreviews(CANCEL, Prices())
    assert outlooks.preview_job(prospect(job(status=JobStatus.RUNNING))).problem == ""
    assert "nothing to cancel" in outlooks.preview_job(prospect(job(status=JobStatus.COMPLETED))).problem


def test_a_forecast_adds_up() -> None:
    outlooks = JobPreviews(RESUME, Prices())
    found = build_batch_preview(
        RESUME,
        [
            outlooks.preview_job(prospect(job("message-1"), call())),
            outlooks.preview_job(prospect(job("message-2"), call(state=CallState.FAILED))),
            outlooks.preview_job(prospect(job("message-3", JobStatus.COMPLETED))),
            outlooks.preview_job(prospect(job("message-4", JobStatus.COMPLETED))),
            JobPreview("nobody", "", "job nobody does not exist"),
        ],
    )
    assert (found.matching, found.possible, found.model_calls) == (5, 2, 1)
    assert (found.cost_usd, found.unknown_cost) == (None, 1)
    assert [(step.step, step.count) for step in found.steps] == [("model-1", 2)]
    assert [(group.count, group.example) for group in found.refused] == [(2, "message-3"), (1, "nobody")]
    assert found.refused[0].reason.startswith("job * is completed")


# Failures of one kind


@pytest.mark.parametrize(
    ("reason", "pattern"),
    [
        ("", ""),
        ("the provider is down", "the provider is down"),
        ("job message-01JD8Z0000ABC is answered by job message-01JX5", "job * is answered by job *"),
        ("HTTP 429 after 12.5 s from 10.0.0.1:8080", "HTTP * after * s from *"),
        ("model 'gpt-4o' can't be had, don't ask \"why\"", "model * can't be had, don't ask *"),
        ("1, 2, 3 and 4", "* and *"),
    ],
)
def test_a_pattern_leaves_out_what_differs(reason: str, pattern: str) -> None:
    assert error_pattern(reason) == pattern


def test_a_long_reason_has_a_short_pattern() -> None:
    assert error_pattern("x" * 1000) == "x" * PATTERN_CHARS + "*"
    assert error_pattern("x" * PATTERN_CHARS) == "x" * PATTERN_CHARS


def test_a_thousand_failures_of_one_kind_are_one_group() -> None:
    def failures(count: int, at: datetime, agent: str | None) -> FailureCount:
        return FailureCount(
            "ProviderDown", "model-1", f"failed after {at.minute} ms", agent, count, str(at), str(at), f"m-{agent}"
        )

    minutes = [NOW + timedelta(minutes=minute) for minute in range(3)]
    (group,) = group_failures(
        [failures(500, minutes[0], "bob"), failures(499, minutes[2], "ada"), failures(1, minutes[1], None)]
    ).items
    assert (group.count, group.oldest, group.newest) == (1000, minutes[0], minutes[2])
    assert (group.agents, group.example, group.reason) == (("ada", "bob"), "m-ada", "failed after * ms")


def test_the_newest_kind_of_failure_comes_first() -> None:
    old, new = NOW, NOW + timedelta(hours=1)
    page = group_failures(
        [
            FailureCount("A", "", "a", None, 9, str(old), str(old), "m"),
            FailureCount("B", "", "a", None, 1, str(new), str(new), "m"),
        ]
    )
    assert [group.error for group in page.items] == ["B", "A"]


# How far it is


def batch(**more: Any) -> ReplayBatch:
    return ReplayBatch(id="batch-1", action=RESUME, created_at=NOW, **more)


def test_the_end_is_estimated_from_what_has_ended() -> None:
    later = NOW + timedelta(minutes=10)
    some = BatchProgress({ItemState.WAITING: 20, ItemState.BEGUN: 20}, {JobStatus.COMPLETED: 10, JobStatus.RUNNING: 10})
    assert estimated_end(batch(), some, later) == later + timedelta(minutes=30)
    assert estimated_end(batch(), BatchProgress({ItemState.WAITING: 20}, {}), later) is None
    assert estimated_end(batch(), BatchProgress({ItemState.BEGUN: 1}, {JobStatus.FAILED: 1}), later) is None


def test_a_view_tells_where_every_job_is() -> None:
    begun = {JobStatus.COMPLETED: 3, JobStatus.FAILED: 1, JobStatus.PENDING: 2, JobStatus.DROPPED: 1}
    items = {ItemState.BEGUN: 7, ItemState.REFUSED: 2, ItemState.SKIPPED: 1}
    view = batch_view(batch(total=10, wanted='{"status":["failed"]}'), BatchProgress(items, begun), NOW)
    assert (view.waiting, view.begun, view.refused, view.skipped) == (0, 7, 2, 1)
    assert (view.completed, view.failed, view.open, view.otherwise) == (3, 1, 2, 1)
    assert view.filter == JobFilter(status=(JobStatus.FAILED,))


# What may be asked for


@pytest.mark.parametrize("wrong", [{}, {"filter": {}, "ids": ["a"]}, {"ids": []}, {"ids": [""]}])
def test_jobs_are_meant_by_a_filter_or_by_their_ids(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BatchRequest.model_validate({"action": "resume", **wrong})


def test_edits_go_with_a_restart_only() -> None:
    BatchRequest(action=RESTART, filter=JobFilter(), edits=JobEdits(model="m"))
    with pytest.raises(ValidationError, match="edits need the mode restart"):
        BatchRequest(action=RESUME, filter=JobFilter(), edits=JobEdits(model="m"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"since": "2026-11-20T08:00:00"},
        {"since": "0001-01-01T00:00:00+14:00"},
        {"since": "2026-11-21T08:00:00Z", "until": "2026-11-20T08:00:00Z"},
        {"priority": 0},
        {"conversation": 2**63},
    ],
)
def test_a_filter_that_fits_no_job_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        JobFilter.model_validate(wrong)
