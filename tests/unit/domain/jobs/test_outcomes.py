"""What came of a step, in words."""

from datetime import UTC, datetime

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
    TakeUpOutcome,
    VoiceOutcome,
)
from maestro.domain.jobs.job import JobStep, StepState, Wait
from maestro.domain.jobs.steps import result_words
from maestro.domain.values import Value


def row(step: str, result: Value | str, state: StepState = StepState.DONE) -> JobStep:
    text = result if isinstance(result, str) else result.model_dump_json()
    now = datetime(2026, 11, 20, tzinfo=UTC)
    return JobStep(job_id="j", step=step, activity="a", run=1, attempt=1, state=state, started_at=now, result=text)


@pytest.mark.parametrize(
    ("step", "result", "note"),
    [
        ("route", RouteOutcome(action=RouteAction.ANSWER, agent="ada", reason="bound"), "ada answers: bound"),
        ("route", RouteOutcome(action=RouteAction.DROP, reason="no rule"), "no agent answers: no rule"),
        ("route", RouteOutcome(action=RouteAction.REPLY), "Maestro itself replies"),
        ("take-up", TakeUpOutcome(agent="bob", conversation_id=1, heard=True, typing=False), "another agent gets"),
        ("take-up", BackgroundOutcome(agent="bob", script=True), "bob works on the task, by a script"),
        ("media", MediaOutcome(files=2, unavailable=1), "2 fetched, 1 unavailable"),
        ("media", MediaOutcome(files=0), "no files"),
        ("voice", VoiceOutcome(voices=3, transcribed=2), "2 of 3 transcribed"),
        (
            "compaction",
            CompactionOutcome(compaction_id=1, archived=30, facts=2),
            "30 messages archived, 2 facts stored",
        ),
        ("compaction", CompactionOutcome(compaction_id=0), "nothing to archive"),
        ("script", ScriptOutcome(posts=False), "nothing to post"),
        ("script", ScriptOutcome(posts=True), "has something to post"),
        ("context", ContextOutcome(prompt_id=1, turns=1_200, tokens=34_000), "about 34,000 tokens in 1,200 messages"),
        ("tags", AnswerOutcome(message_id=4, begun=("x",)), "recorded as message 4; begins 1 task of other agents"),
        ("tags", AnswerOutcome(message_id=0, silent=True), "nothing to post, so nothing is sent"),
        ("deliver", DeliverOutcome(chunks=0), "nothing to send"),
        ("notice", DeliverOutcome(chunks=1), "1 sent"),
    ],
)
def test_what_came_of_a_step_is_said(step: str, result: Value, note: str) -> None:
    assert note in result_words(row(step, result))


def test_a_model_call_says_who_answered_and_what_it_asks_for() -> None:
    told = ModelOutcome(
        number=1, model="m", provider="p", account="a", input_tokens=1, output_tokens=1, cost_usd=None, tools=("x", "y")
    )
    assert result_words(row("model-1", told)) == "p/m asks for x, y: 1 tokens in, 1 out"
    assert result_words(row("model-1", told.model_copy(update={"tools": ()}))) == "p/m answers: 1 tokens in, 1 out"


def test_a_step_that_waits_says_for_what() -> None:
    waits = Wait(reason=WaitReason.ACCOUNT)
    assert result_words(row("model-1", waits, StepState.WAITING)) == "waits for account"


def test_a_result_in_other_words_leaves_the_note_out() -> None:
    assert result_words(row("route", '{"of": "another release"}')) == ""
    assert result_words(row("route", "no JSON")) == ""
    assert result_words(row("of tomorrow", '{"any": "thing"}')) == ""
    assert result_words(row("route", "", StepState.FAILED)) == ""
