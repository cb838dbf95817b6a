"""Which spans the rows of a job become."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from maestro.domain.deliveries import DeliveryPurpose, DeliveryState
from maestro.domain.errors import WaitReason
from maestro.domain.jobs.job import JobKind, JobStatus, StepState, Wait
from maestro.domain.jobs.spans import build_trace
from maestro.domain.jobs.traces import (
    TracedChunk,
    TracedJob,
    TracedStep,
    TracedTool,
    TraceRecord,
    TraceSpan,
    is_sampled,
    root_context,
    trace_id_text,
)
from maestro.domain.tools import ToolState

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
JOB = TracedJob(
    id="message-1",
    kind=JobKind.MESSAGE,
    status=JobStatus.COMPLETED,
    platform="slack",
    account="default",
    lane="slack/default/C024 of somebody",
    turn=7,
    run=1,
    error="",
    schedule=None,
    what_if=False,
    parent_id=None,
    merged_into=None,
    restarted_from=None,
    process="connect@one:1",
    created_at=NOON,
    claimed_at=NOON + SECOND,
    started_at=NOON + 2 * SECOND,
    completed_at=NOON + 9 * SECOND,
    agent="ada",
    message_id="1700.1",
    sent_at=NOON - SECOND,
    received_at=NOON,
)


def step(name: str, at: int, state: StepState = StepState.DONE, **fields: object) -> TracedStep:
    """Return an attempt that began ``at`` seconds after noon and took one."""
    began = NOON + at * SECOND
    usual = TracedStep(JOB.id, name, "prepare", 1, 1, "r", "worker@two:2", state, began, began + SECOND, "", "")
    return usual._replace(**fields)  # type: ignore[arg-type]


def by_name(record: TraceRecord) -> dict[str, TraceSpan]:
    return {span.name: span for span in build_trace(record)}


def test_ids_follow_from_the_job_alone() -> None:
    record = TraceRecord(JOB, [step("route", 2)])
    assert build_trace(record) == build_trace(record)
    assert len({span.context for span in build_trace(record)}) == len(build_trace(record))
    assert trace_id_text(JOB.id, NOON) == f"{build_trace(record)[0].context.trace_id:032x}"
    assert root_context(JOB.id, NOON) != root_context(JOB.id, NOON + SECOND)


def test_the_root_encloses_everything_and_names_no_channel() -> None:
    spans = build_trace(TraceRecord(JOB, [step("route", 2)]))
    root = spans[0]
    assert (root.start, root.end) == (NOON - SECOND, NOON + 9 * SECOND)
    assert all(root.start <= span.start <= span.end <= root.end for span in spans)
    assert "somebody" not in str([span.attributes for span in spans])


def test_a_clock_that_was_set_back_gives_no_negative_span() -> None:
    late = JOB._replace(sent_at=NOON + SECOND, claimed_at=NOON - SECOND)
    assert all(span.start <= span.end for span in build_trace(TraceRecord(late, [step("route", -3)])))


def test_an_attempt_whose_process_died_failed_and_the_next_one_is_another_span() -> None:
    attempts = [step("model-1", 2, StepState.INTERRUPTED), step("model-1", 4, attempt=2, process="worker@three:3")]
    spans = [span for span in build_trace(TraceRecord(JOB, attempts)) if span.name == "model"]
    assert [(span.error, span.process) for span in spans] == [("interrupted", "worker@two:2"), ("", "worker@three:3")]


def test_a_wait_for_a_person_is_a_span_from_one_attempt_to_the_next() -> None:
    waits = Wait(reason=WaitReason.PERSON).model_dump_json()
    attempts = [step("tool-1-0", 2, StepState.WAITING, result=waits), step("tool-1-0", 8, run=2, attempt=2)]
    wait = by_name(TraceRecord(JOB._replace(run=2), attempts))["wait"]
    assert (wait.start, wait.end) == (NOON + 3 * SECOND, NOON + 8 * SECOND)
    assert wait.attributes["maestro.wait.reason"] == "person"


def test_chunks_follow_each_other_and_an_unconfirmed_one_failed() -> None:
    sent = TracedChunk(
        job_id=JOB.id,
        id=1,
        purpose=DeliveryPurpose.ANSWER,
        seq=0,
        platform="slack",
        state=DeliveryState.SENT,
        attempts=1,
        repeats=0,
        error="",
        tried_at=None,
        created_at=NOON + 6 * SECOND,
        sent_at=NOON + 7 * SECOND,
    )
    unsure = sent._replace(id=2, seq=1, state=DeliveryState.UNCONFIRMED, sent_at=None)
    never = sent._replace(id=3, seq=2, state=DeliveryState.ABANDONED, attempts=0, sent_at=None)
    record = TraceRecord(JOB, [step("deliver", 6)], chunks=[sent, unsure, never])
    first, second = (span for span in build_trace(record) if span.name == "send slack")
    assert first.end == second.start
    assert (first.error, second.error) == ("", "unconfirmed")
    assert first.parent == by_name(record)["deliver"].context


def test_the_name_of_a_tool_that_the_model_made_up_is_not_shown() -> None:
    asked = TracedTool(JOB.id, 1, 0, "tell bob that ...", ToolState.FAILED, 1, NOON + 3 * SECOND, None)
    names = {span.name for span in build_trace(TraceRecord(JOB, [step("tool-1-0", 3)], tools=[asked]))}
    refused = asked._replace(tool="invented", state=ToolState.REFUSED)
    names |= {span.name for span in build_trace(TraceRecord(JOB, [step("tool-1-0", 3)], tools=[refused]))}
    assert not [name for name in names if "bob" in name or "invented" in name]


def test_delegated_merged_and_restarted_jobs_link_to_the_others() -> None:
    job = JOB._replace(kind=JobKind.DELEGATION, parent_id="message-0", merged_into="message-2", restarted_from="gone")
    root = build_trace(TraceRecord(job, related={"message-0": NOON, "message-2": NOON}))[0]
    assert root.links == {
        "delegated by": root_context("message-0", NOON),
        "merged into": root_context("message-2", NOON),
    }


def test_a_failed_job_is_always_sampled_and_others_by_ratio() -> None:
    records = [TraceRecord(JOB._replace(id=f"message-{number}")) for number in range(1000)]
    assert 200 < sum(is_sampled(record, 0.25) for record in records) < 300
    assert not any(is_sampled(record, 0) for record in records)
    assert all(is_sampled(record, 1) for record in records)
    assert all(is_sampled(replace(r, job=r.job._replace(status=JobStatus.FAILED)), 0) for r in records)
