"""The course of a job: what each attempt did stands under it, on the scale of its run."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.jobs.job import Job, JobKind, JobStatus, JobStep, StepState
from maestro.domain.jobs.page import THIN, WIDTH, JobTimeline, build_timeline, current_step
from maestro.domain.jobs.views import JobRecord, ListedJob, ToolRunView, job_detail, tool_view
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.tools import ToolRun, ToolState

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ID = "message-1"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def step(name: str, began: float, ended: float | None, run: int = 1, attempt: int = 1) -> JobStep:
    return JobStep(
        job_id=ID,
        step=name,
        activity=name,
        run=run,
        attempt=attempt,
        state=StepState.RUNNING if ended is None else StepState.DONE,
        started_at=at(began),
        finished_at=None if ended is None else at(ended),
    )


def call(number: int, began: float, purpose: CallPurpose = CallPurpose.ANSWER, attempt: int = 1) -> LLMCall:
    return LLMCall(
        id=number * 10 + attempt,
        job_id=ID,
        purpose=purpose,
        number=number,
        attempt=attempt,
        state=CallState.ANSWERED,
        request="digest",
        started_at=at(began),
    )


def chunk(purpose: DeliveryPurpose) -> Delivery:
    return Delivery(
        job_id=ID, purpose=purpose, seq=0, platform="web", account="a", channel="c", content="hi", created_at=NOON
    )


def record(
    *steps: JobStep,
    status: JobStatus = JobStatus.RUNNING,
    calls: Sequence[LLMCall] = (),
    tools: Sequence[ToolRunView] = (),
    deliveries: Sequence[Delivery] = (),
) -> JobRecord:
    job = Job(id=ID, kind=JobKind.MESSAGE, status=status, platform="web", account="a", channel="c", created_at=NOON)
    listed = ListedJob(job, "ada", "Grace", "hello", None)
    return JobRecord(listed, steps=steps, calls=calls, tools=tools, deliveries=deliveries)


def course_of(of: JobRecord, now: float = 100) -> JobTimeline:
    return build_timeline(of, job_detail(of), at(now))


def test_a_call_stands_under_the_attempt_that_made_it() -> None:
    steps = step("model-1", 0, 1), step("model-1", 10, 12, attempt=2), step("model-2", 20, 21)
    calls = call(1, 0.5), call(1, 10, attempt=2), call(1, 11, attempt=3), call(2, 20.5)
    [stretch] = course_of(record(*steps, calls=calls)).runs
    assert [[one.id for one in entry.calls] for entry in stretch.entries] == [[11], [12, 13], [21]]


def test_a_call_that_was_noted_before_its_step_stands_under_the_first_attempt() -> None:
    [stretch] = course_of(record(step("model-1", 5, 6), calls=[call(1, 4)])).runs
    assert [one.id for one in stretch.entries[0].calls] == [11]


def test_the_calls_of_a_compaction_stand_under_it() -> None:
    steps = step("compaction", 0, 5), step("model-1", 6, 7)
    calls = call(7, 1, CallPurpose.FACTS), call(7, 2, CallPurpose.SUMMARY), call(1, 6)
    [stretch] = course_of(record(*steps, calls=calls)).runs
    assert [[one.purpose for one in entry.calls] for entry in stretch.entries] == [["facts", "summary"], ["answer"]]


def test_what_is_repeated_stands_under_the_last_attempt() -> None:
    tool = ToolRun(job_id=ID, number=1, place=0, tool="t", arguments="", state=ToolState.DONE, started_at=NOON)
    steps = step("tool-1-0", 0, 1), step("tool-1-0", 2, 3, attempt=2)
    [stretch] = course_of(record(*steps, tools=[tool_view(tool, "", "")])).runs
    assert [len(entry.tools) for entry in stretch.entries] == [0, 1]


def test_an_answer_and_a_notice_stand_under_the_steps_that_send_them() -> None:
    steps = step("deliver", 0, 1), step("notice", 2, 3)
    sent = chunk(DeliveryPurpose.ANSWER), chunk(DeliveryPurpose.NOTICE)
    [stretch] = course_of(record(*steps, deliveries=sent)).runs
    assert [[one.purpose for one in entry.deliveries] for entry in stretch.entries] == [["answer"], ["notice"]]


def test_a_notice_that_is_all_there_is_to_say_is_delivered() -> None:
    [stretch] = course_of(record(step("deliver", 0, 1), deliveries=[chunk(DeliveryPurpose.NOTICE)])).runs
    assert len(stretch.entries[0].deliveries) == 1


def test_what_has_no_step_is_not_lost() -> None:
    found = course_of(record(calls=[call(1, 0)], deliveries=[chunk(DeliveryPurpose.ANSWER)]))
    assert not found.runs
    assert (len(found.unplaced.calls), len(found.unplaced.deliveries)) == (1, 1)


def test_runs_come_newest_first_and_each_has_a_scale_of_its_own() -> None:
    steps = step("context", 0, 1), step("model-1", 1, 4), step("model-1", 10_000, 10_002, run=2, attempt=2)
    newest, first = course_of(record(*steps)).runs
    assert (newest.run, first.run) == (2, 1)
    assert [(entry.offset, entry.width) for entry in first.entries] == [(0, 25), (25, 75)]
    assert [(entry.offset, entry.width) for entry in newest.entries] == [(0, WIDTH)]
    assert (first.milliseconds, newest.milliseconds) == (4_000, 2_000)


def test_the_newest_runs_are_those_with_few_steps_together_and_one_in_any_case() -> None:
    steps = [step("model-1", run * 10 + place, run * 10 + place + 1, run) for run in (1, 2, 3) for place in range(2)]
    found = course_of(record(*steps))
    assert [stretch.run for stretch in found.newest_runs(5)] == [3, 2]
    assert [stretch.run for stretch in found.newest_runs(6)] == [3, 2, 1]
    assert [stretch.run for stretch in found.newest_runs(1)] == [3]
    assert JobTimeline().newest_runs(5) == ()


def test_what_took_no_time_is_seen_and_stays_within_the_scale() -> None:
    [stretch] = course_of(record(step("model-1", 0, 10), step("tags", 10, 10))).runs
    assert (stretch.entries[1].offset, stretch.entries[1].width) == (WIDTH - THIN, THIN)
    [alone] = course_of(record(step("tags", 10, 10))).runs
    assert (alone.entries[0].offset, alone.entries[0].width) == (0, WIDTH)


def test_what_still_goes_on_reaches_to_now() -> None:
    [stretch] = course_of(record(step("context", 0, 1), step("model-1", 1, None)), now=4).runs
    assert (stretch.entries[1].offset, stretch.entries[1].width) == (25, 75)


def test_what_a_job_does_now_is_its_last_step_while_it_goes_on() -> None:
    running = record(step("context", 0, 1), step("model-1", 1, None))
    found = current_step(job_detail(running))
    assert found is not None
    assert found.step == "model-1"
    assert current_step(job_detail(record(step("context", 0, 1)))) is None, "between two steps"
    ended = record(step("model-1", 1, None), status=JobStatus.CANCELLED)
    assert current_step(job_detail(ended)) is None
    assert current_step(job_detail(record())) is None
