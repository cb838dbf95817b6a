"""What a replay would do, told before it does anything: pure over the rows of a job."""

from datetime import UTC, datetime
from typing import Any

import pytest

from maestro.domain.deliveries import Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.jobs.job import NO_EDITS, Job, JobEdits, JobKind, JobStep, StepState
from maestro.domain.jobs.replay import EffectKind, ReplayEvidence, ReplayMode, ReplayPreview, build_preview
from maestro.domain.jobs.steps import finished_results, next_step, retried_steps
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.tags.actions import Action, ActionState
from maestro.domain.tools import ToolRun, ToolState

AT = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = '{"number":1,"model":"m","provider":"p","account":"a","input_tokens":1,"output_tokens":1,"cost_usd":null'
RESULTS = {
    "route": '{"action":"answer","agent":"ada","media":true}',
    "media": '{"files":1,"voices":1}',
    "voice": '{"voices":1}',
    "conversation": '{"conversation_id":1,"message_id":1,"compaction_due":true}',
    "compaction": '{"compaction_id":1}',
    "context": '{"prompt_id":1,"turns":1,"tokens":1}',
    "model-1": MODEL + ',"tools":["calculate","calculate"]}',
    "tool-1-0": '{"state":"done"}',
    "tool-1-1": '{"state":"done"}',
    "model-2": MODEL + "}",
    "tags": '{"message_id":2}',
    "deliver": '{"chunks":1}',
}
ORDER = list(RESULTS)


def job(**fields: Any) -> Job:
    return Job(id="one", platform="web", account="default", channel="c", inbox_id=1, created_at=AT, **fields)


def step(name: str, state: StepState = StepState.DONE, result: str = "") -> JobStep:
    result = result or RESULTS.get(name, "") if state is StepState.DONE else ""
    return JobStep(job_id="one", step=name, activity="a", run=1, attempt=1, state=state, started_at=AT, result=result)


def until(name: str) -> list[JobStep]:
    """Return the steps before this one, finished, and this one, failed."""
    return [*(step(one) for one in ORDER[: ORDER.index(name)]), step(name, StepState.FAILED)]


def call(number: int, cost: float | None = 0.5, tools: str = "", state: CallState = CallState.ANSWERED) -> LLMCall:
    fields: dict[str, Any] = {
        "job_id": "one",
        "purpose": CallPurpose.ANSWER,
        "attempt": 1,
        "request": "",
        "started_at": AT,
    }
    return LLMCall(number=number, state=state, cost_usd=cost, tool_calls=tools, **fields)


def chunk(seq: int, state: DeliveryState) -> Delivery:
    place: dict[str, Any] = {"platform": "web", "account": "default", "channel": "c"}
    return Delivery(
        job_id="one", purpose=DeliveryPurpose.ANSWER, seq=seq, content="x", state=state, created_at=AT, **place
    )


def tool_run(name: str, place: int, state: ToolState = ToolState.DONE) -> ToolRun:
    return ToolRun(job_id="one", number=1, place=place, tool=name, arguments="", state=state, attempts=1, started_at=AT)


def resumed(*steps: JobStep, of: Job | None = None, **rows: Any) -> ReplayPreview:
    return build_preview(ReplayEvidence(of or job(), steps, **rows), ReplayMode.RESUME, NO_EDITS)


@pytest.mark.parametrize("name", [one for one in ORDER if one not in ("media", "voice", "compaction")])
def test_a_message_goes_on_at_the_first_step_that_did_not_finish(name: str) -> None:
    assert next_step(job(), finished_results(until(name))) == name


def test_what_follows_a_failure_is_no_result_that_is_kept() -> None:
    steps = [*until("deliver"), step("notice", result="{}"), step("close-1", result="{}")]
    assert resumed(*steps).kept == tuple(ORDER[:-1])


def test_what_the_answer_did_without_is_tried_again_on_the_way() -> None:
    failed = [step(one, StepState.FAILED) if one == "compaction" else step(one) for one in ORDER[:-1]]
    assert (next_step(job(), finished_results(failed)), retried_steps(job(), finished_results(failed))) == (
        "deliver",
        ("compaction",),
    )
    found = resumed(*failed)
    assert (found.model_calls, found.more) == (0, True)
    assert found.effects[0].text.startswith("compaction is tried again")


@pytest.mark.parametrize(
    ("kind", "fields", "done", "expected"),
    [
        (JobKind.DELEGATION, {"parent_id": "above", "task": "t"}, {}, "take-up"),
        (JobKind.DELEGATION, {"parent_id": "above", "task": "t"}, {"take-up": "{}"}, "context"),
        (JobKind.CRON, {"task": "t"}, {"take-up": '{"agent":"ada"}'}, "context"),
        (JobKind.HEARTBEAT, {}, {"take-up": '{"agent":"ada","script":true}'}, "script"),
        (JobKind.HEARTBEAT, {}, {"take-up": '{"agent":"ada","script":true}', "script": '{"posts":true}'}, "deliver"),
        (JobKind.HEARTBEAT, {}, {"take-up": '{"agent":"ada","script":true}', "script": '{"posts":false}'}, None),
        (JobKind.MESSAGE, {"notice": "hello"}, {"route": '{"action":"reply"}'}, "deliver"),
        (JobKind.MESSAGE, {}, {"route": '{"action":"drop"}'}, None),
        (JobKind.MESSAGE, {"what_if": True}, {"route": RESULTS["route"]}, "context"),
    ],
)
def test_every_kind_has_its_own_path(
    kind: JobKind, fields: dict[str, Any], done: dict[str, str], expected: str | None
) -> None:
    assert next_step(job(kind=kind, **fields), done) == expected


def test_a_what_if_ends_with_its_answer() -> None:
    done = {name: RESULTS[name] for name in ("route", "context", "model-1", "tool-1-0", "tool-1-1", "model-2")}
    assert next_step(job(what_if=True), done) == "show"


# What is paid


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("route", (1, True)),
        ("context", (1, True)),
        ("tool-1-0", (1, True)),
        ("tags", (0, False)),
        ("deliver", (0, False)),
    ],
)
def test_calls_are_paid_that_are_surely_made(name: str, expected: tuple[int, bool]) -> None:
    found = resumed(*until(name))
    assert (found.step, found.model_calls, found.more) == (name, *expected)


def test_an_answer_that_we_hold_is_not_paid_again() -> None:
    assert resumed(*until("model-2"), calls=[call(1, tools="[...]"), call(2)]).model_calls == 0
    assert resumed(*until("model-1"), calls=[call(1, tools="[...]")]).model_calls == 1
    assert resumed(*until("model-1"), calls=[call(1, state=CallState.FAILED)]).model_calls == 1


def test_what_is_paid_is_guessed_by_what_was_paid() -> None:
    calls = [call(1, 0.25), call(2, 0.75)]
    assert resumed(*until("tool-1-0"), calls=calls).cost_usd == 0.5
    again = build_preview(ReplayEvidence(job(), until("deliver"), calls), ReplayMode.RESTART, NO_EDITS)
    assert (again.step, again.model_calls, again.more, again.first_calls) == ("start", 1, True, 2)
    assert (again.cost_usd, again.first_cost_usd) == (1.0, 1.0)
    unknown = build_preview(ReplayEvidence(job(), (), [call(1, None)]), ReplayMode.RESTART, NO_EDITS)
    assert (unknown.cost_usd, unknown.first_cost_usd) == (None, None)
    other = build_preview(ReplayEvidence(job(), (), calls), ReplayMode.WHAT_IF, JobEdits(model="another"))
    assert (other.cost_usd, other.edits) == (None, JobEdits(model="another"))


# What happens, happens again, or stays


def test_a_resume_sends_what_was_not_sent() -> None:
    states = (DeliveryState.SENT, DeliveryState.UNCONFIRMED, DeliveryState.ABANDONED, DeliveryState.PENDING)
    found = resumed(*until("deliver"), deliveries=[chunk(seq, state) for seq, state in enumerate(states)])
    assert [(effect.kind, effect.count, effect.again, effect.kept) for effect in found.effects] == [
        (EffectKind.SEND, 1, False, True),
        (EffectKind.SEND, 1, True, False),
        (EffectKind.SEND, 2, False, False),
    ]


def test_a_tool_call_that_was_cut_off_is_told() -> None:
    run = tool_run("pay", 1, ToolState.STARTED)
    [tool, *_] = resumed(*until("tool-1-1"), tools=[run]).effects
    assert (tool.kind, tool.again) == (EffectKind.TOOL, True)
    assert "pay was interrupted" in tool.text


def test_tasks_that_were_withheld_begin() -> None:
    assert resumed(*until("deliver"), withheld=2).effects[-1].count == 2


def test_a_restart_tells_what_would_be_done_twice() -> None:
    done: dict[str, Any] = {"job_id": "one", "state": ActionState.DONE, "at": AT}
    of = ReplayEvidence(
        job(),
        until("deliver"),
        deliveries=[chunk(0, DeliveryState.SENT)],
        actions=[Action(seq=0, tag="MEMORY", **done), Action(seq=1, tag="DELEGATE", **done)],
        tools=[tool_run("pay", place) for place in (0, 1)],
        tasks=1,
    )
    found = build_preview(of, ReplayMode.RESTART, NO_EDITS)
    assert [(effect.kind, effect.count, effect.again) for effect in found.effects] == [
        (EffectKind.SEND, 1, False),
        (EffectKind.SEND, 1, True),
        (EffectKind.ACTION, 1, True),
        (EffectKind.TASK, 1, True),
        (EffectKind.TOOL, 2, True),
    ]
    assert [effect.kind for effect in build_preview(of, ReplayMode.WHAT_IF, NO_EDITS).effects] == [EffectKind.TOOL]


def test_a_refused_preview_says_only_why() -> None:
    seen = ReplayPreview(mode=ReplayMode.RESUME, possible=False, problem="it runs")
    assert (seen.step, seen.kept, seen.effects, seen.cost_usd, seen.first_cost_usd) == ("", (), (), 0.0, None)
