"""What a question offers, and which words mean one of the answers."""

from datetime import UTC, datetime

import pytest

from maestro.domain.questions.question import (
    Question,
    QuestionKind,
    choices_json,
    choices_text,
    pick_choice,
    problem_of_choices,
    tidy_choices,
)

COLOURS = ("Red", "Dark blue", "None of them")
PORTS = ("2", "3", "4")


@pytest.mark.parametrize(
    ("choices", "words", "meant"),
    [
        (COLOURS, "Red", "Red"),
        (COLOURS, " dark   BLUE ", "Dark blue"),
        (COLOURS, "1", "Red"),
        (COLOURS, "2.", "Dark blue"),
        (COLOURS, "3)", "None of them"),
        (COLOURS, "0", None),
        (COLOURS, "4", None),
        (COLOURS, "1 or 2", None),
        (COLOURS, "a dark blue one", None),
        (COLOURS, "", None),
        (PORTS, "2", "2"),
        (PORTS, "1", "2"),
        ((), "1", None),
    ],
)
def test_a_choice_is_meant_by_its_text_or_else_by_its_number(
    choices: tuple[str, ...], words: str, meant: str | None
) -> None:
    assert pick_choice(choices, words) == meant


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        ((), ""),
        (COLOURS, ""),
        (("Red", " "), "A choice is empty."),
        (("Red", "red "), "Two choices are the same."),
        (("Go on", "/stop"), "The choice /stop is a command of Maestro itself."),
        (("Go on", "/pair me"), "The choice /pair me is"),
        (("/etc/hosts", "/etc/passwd"), ""),
    ],
)
def test_what_cannot_be_offered_is_told(choices: tuple[str, ...], problem: str) -> None:
    found = problem_of_choices(tidy_choices(choices))
    assert found.startswith(problem)
    assert bool(found) is bool(problem)


def test_people_read_a_numbered_list_below_the_question() -> None:
    assert choices_text(COLOURS[:2]) == "Answer with a number or your own words:\n1. Red\n2. Dark blue"
    assert choices_text(()) == ""


@pytest.mark.parametrize("choices", [(), COLOURS, ("„so“", 'with "quotes"')])
def test_a_row_keeps_them_as_they_are(choices: tuple[str, ...]) -> None:
    kind, now = QuestionKind.QUESTION, datetime.now(UTC)
    question = Question(kind=kind, text="Which?", choices=choices_json(choices), asked_at=now, expires_at=now)
    assert question.offered == choices
