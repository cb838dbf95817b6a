"""What each step is for and what came of it, in words; every step of every flow has some."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from maestro.domain.errors import WaitReason
from maestro.domain.jobs.flow import (
    AnswerOutcome,
    BackgroundOutcome,
    CompactionOutcome,
    ContextOutcome,
    DeliverOutcome,
    MediaOutcome,
    ModelOutcome,
    RouteAction,
    RouteOutcome,
    ScriptOutcome,
    TakenUp,
    VoiceOutcome,
)
from maestro.domain.jobs.job import JobStep, StepState, Wait
from maestro.domain.jobs.outcomes import PURPOSES, kind_of, note_of, purpose_of
from maestro.domain.values import Value

WORKFLOWS = Path(__file__).parents[4] / "workflows"
BEGUN = r"(?:step=f?|step, summary = f|prepare\(|(?:local|outside|_optional)\(\s*\w+\.\w+,\s*)"
STEP = re.compile(BEGUN + r'"([a-z]+[a-z-]*?)-?[{"]')
"""How a workflow names a step; of one with a number, what stands before that."""


def row(step: str, result: Value | str, state: StepState = StepState.DONE) -> JobStep:
    text = result if isinstance(result, str) else result.model_dump_json()
    now = datetime(2026, 11, 20, tzinfo=UTC)
    return JobStep(job_id="j", step=step, activity="a", run=1, attempt=1, state=state, started_at=now, result=text)


def test_every_step_of_the_flows_is_told_in_words() -> None:
    named = {name for file in WORKFLOWS.glob("*.py") for name in STEP.findall(file.read_text())}
    assert {"route", "context", "model", "tool", "tags", "take-up", "script", "media", "compaction"} <= named
    assert named - set(PURPOSES) == set()


@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        ("route", "route", "Decide who answers"),
        ("take-up", "take-up", "Take up the work"),
        ("model-2", "model", "Ask the model, call 2"),
        ("tool-2-0", "tool", "Call a tool"),
        ("park-13", "park", "Give the place back and wait"),
        ("of tomorrow", "of tomorrow", "of tomorrow"),
    ],
)
def test_a_step_has_a_kind_and_words(step: str, kind: str, words: str) -> None:
    assert (kind_of(step), purpose_of(step)) == (kind, words)


@pytest.mark.parametrize(
    ("step", "result", "note"),
    [
        ("route", RouteOutcome(action=RouteAction.ANSWER, agent="ada", reason="bound"), "ada answers: bound"),
        ("route", RouteOutcome(action=RouteAction.DROP, reason="no rule"), "nobody answers: no rule"),
        ("route", RouteOutcome(action=RouteAction.REPLY), "Maestro itself replies"),
        ("take-up", TakenUp(agent="bob", conversation_id=1, heard=True, typing=False), "another agent hears"),
        ("take-up", BackgroundOutcome(agent="bob", script=True), "bob works on it, by a script"),
        ("media", MediaOutcome(files=2, unavailable=1), "2 fetched, 1 not to be had"),
        ("media", MediaOutcome(files=0), "no files"),
        ("voice", VoiceOutcome(voices=3, transcribed=2), "2 of 3 transcribed"),
        ("compaction", CompactionOutcome(compaction_id=1, archived=30, facts=2), "30 messages archived, 2 facts kept"),
        ("compaction", CompactionOutcome(compaction_id=0), "nothing could go"),
        ("script", ScriptOutcome(posts=False), "nothing to post"),
        ("script", ScriptOutcome(posts=True), "has something to post"),
        ("context", ContextOutcome(prompt_id=1, turns=1_200, tokens=34_000), "about 34,000 tokens in 1,200 turns"),
        ("tags", AnswerOutcome(message_id=4, begun=("x",)), "recorded as message 4; begins 1 task of other agents"),
        ("tags", AnswerOutcome(message_id=0, silent=True), "nothing to tell, so nothing is sent"),
        ("deliver", DeliverOutcome(chunks=0), "nothing to send"),
        ("notice", DeliverOutcome(chunks=1), "1 sent"),
    ],
)
def test_what_came_of_a_step_is_said(step: str, result: Value, note: str) -> None:
    assert note in note_of(row(step, result))


def test_a_model_call_says_who_answered_and_what_it_asks_for() -> None:
    told = ModelOutcome(
        number=1, model="m", provider="p", account="a", input_tokens=1, output_tokens=1, cost_usd=None, tools=("x", "y")
    )
    assert note_of(row("model-1", told)) == "p/m asks for x, y"
    assert note_of(row("model-1", told.model_copy(update={"tools": ()}))) == "p/m answers"


def test_a_step_that_waits_says_for_what() -> None:
    waits = Wait(reason=WaitReason.ACCOUNT)
    assert note_of(row("model-1", waits, StepState.WAITING)) == "waits for account"


def test_a_result_in_other_words_leaves_the_note_out() -> None:
    assert note_of(row("route", '{"of": "another release"}')) == ""
    assert note_of(row("route", "no JSON")) == ""
    assert note_of(row("of tomorrow", '{"any": "thing"}')) == ""
    assert note_of(row("route", "", StepState.FAILED)) == ""
