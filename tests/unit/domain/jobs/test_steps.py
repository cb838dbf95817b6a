"""The table of steps, and the path of each kind of job through them."""

from collections.abc import Iterator
from typing import Any

import pytest

from maestro.domain.jobs.flow import (
    AnswerOutcome,
    BackgroundOutcome,
    ConversationOutcome,
    MediaOutcome,
    ModelOutcome,
    RouteAction,
    RouteOutcome,
    ScriptOutcome,
    TakeUpOutcome,
)
from maestro.domain.jobs.steps import (
    StepKind,
    StepPath,
    background_steps,
    list_what_if_steps,
    message_steps,
    read_outcome,
    step_kind,
    step_numbers,
    step_purpose,
    task_steps,
)

ROUTE = RouteOutcome(action=RouteAction.ANSWER)
BUILT = {"conversation": ConversationOutcome(conversation_id=1, message_id=1), "tags": AnswerOutcome(message_id=2)}
ASKED = ["context", "model-1"]
ANSWERED = [*ASKED, "tags", "deliver"]


def call(*tools: str) -> ModelOutcome:
    usage: dict[str, Any] = {"input_tokens": 1, "output_tokens": 1, "cost_usd": None}
    return ModelOutcome(number=1, model="m", provider="p", account="a", tools=tools, **usage)


def names(path: StepPath, **results: Any) -> Iterator[str]:
    """Walk a path; a step without a result of its own is a model call that asks for no tools."""
    for steps in path(lambda step: results.get(step.replace("-", "_"), BUILT.get(step, call()))):
        yield "+".join(steps)


@pytest.mark.parametrize(
    ("route", "others", "way"),
    [
        (ROUTE, {}, ["route", "conversation", *ANSWERED]),
        (RouteOutcome(action=RouteAction.DROP), {}, ["route"]),
        (RouteOutcome(action=RouteAction.REPLY), {}, ["route", "deliver"]),
        (
            RouteOutcome(action=RouteAction.ANSWER, media=True),
            {"media": MediaOutcome(files=1, voices=1)},
            ["route", "media", "voice", "conversation", *ANSWERED],
        ),
        (
            RouteOutcome(action=RouteAction.ANSWER, media=True),
            {"media": None},
            ["route", "media", "conversation", *ANSWERED],
        ),
        (
            ROUTE,
            {"conversation": ConversationOutcome(conversation_id=1, message_id=1, compaction_due=True)},
            ["route", "conversation", "compaction", *ANSWERED],
        ),
        (ROUTE, {"tags": AnswerOutcome(message_id=0, silent=True)}, ["route", "conversation", *ASKED, "tags"]),
    ],
)
def test_the_path_of_a_message(route: RouteOutcome, others: dict[str, Any], way: list[str]) -> None:
    assert list(names(message_steps, route=route, **others)) == way


def test_the_tools_of_an_answer_are_called_side_by_side_before_the_model_is_asked_again() -> None:
    way = list(names(list_what_if_steps, route=ROUTE, model_1=call("t", "u"), model_2=call("t")))
    assert way == ["route", *ASKED, "tool-1-0+tool-1-1", "model-2", "tool-2-0", "model-3", "show"]


def test_the_path_of_a_task() -> None:
    task = TakeUpOutcome(agent="ada", conversation_id=1, heard=True, typing=False)
    assert list(names(task_steps, take_up=task)) == ["take-up", *ANSWERED]


def test_the_path_of_a_job_without_a_person() -> None:
    assert list(names(background_steps, take_up=BackgroundOutcome(agent="ada"))) == ["take-up", *ANSWERED]
    script = {"take_up": BackgroundOutcome(agent="ada", script=True)}
    assert list(names(background_steps, script=ScriptOutcome(posts=True), **script)) == ["take-up", "script", "deliver"]
    assert list(names(background_steps, script=ScriptOutcome(posts=False), **script)) == ["take-up", "script"]


def test_every_path_is_in_the_order_of_the_table() -> None:
    order = list(StepKind)
    media = {"media": MediaOutcome(files=1, voices=1)}
    route = RouteOutcome(action=RouteAction.ANSWER, media=True)
    for path in (message_steps, list_what_if_steps):
        places = [order.index(kind) for step in names(path, route=route, **media) if (kind := step_kind(step))]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("step", "kind", "numbers", "words"),
    [
        ("route", StepKind.ROUTE, (), "Choose the agent"),
        ("take-up", StepKind.TAKE_UP, (), "Load the task"),
        ("model-2", StepKind.MODEL, (2,), "Ask the model, call 2"),
        ("tool-2-0", StepKind.TOOL, (2, 0), "Call a tool"),
        ("park-13", StepKind.PARK, (13,), "Leave the lane and wait"),
        ("of tomorrow", None, (), "of tomorrow"),
    ],
)
def test_a_step_has_a_kind_numbers_and_words(
    step: str, kind: StepKind | None, numbers: tuple[int, ...], words: str
) -> None:
    assert (step_kind(step), step_numbers(step), step_purpose(step)) == (kind, numbers, words)
    assert kind is None or kind.numbered_step(*numbers) == step


def test_a_task_and_background_work_are_told_apart_by_what_they_return() -> None:
    for taken in (TakeUpOutcome(agent="a", conversation_id=1, heard=True, typing=False), BackgroundOutcome(agent="a")):
        assert read_outcome("take-up", taken.model_dump_json()) == taken
