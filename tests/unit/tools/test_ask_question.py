"""What a person is asked."""

import pytest

from maestro.tools.base import ToolFailure, ToolQuestion
from maestro.tools.chat import AskQuestion
from maestro.tools.registry import parse_arguments


def test_the_question_is_asked_with_its_context() -> None:
    tool = AskQuestion()
    arguments = parse_arguments(
        tool.spec.name, tool.spec.parameters, '{"question": " Which one? ", "context": " There are two. "}'
    )
    assert tool.question(arguments) == ToolQuestion("Which one?", "There are two.")
    assert tool.question(parse_arguments(tool.spec.name, tool.spec.parameters, '{"question": "Why?"}')) == ToolQuestion(
        "Why?", ""
    )


@pytest.mark.parametrize("arguments", ["{}", '{"question": ""}', '{"question": "  "}', '{"question": 5}'])
def test_a_question_of_nothing_is_a_failure(arguments: str) -> None:
    with pytest.raises(ToolFailure):
        AskQuestion().question(parse_arguments(AskQuestion.spec.name, AskQuestion.spec.parameters, arguments))


def test_choices_are_offered_as_they_are_read() -> None:
    tool = AskQuestion()
    asked = tool.question(
        parse_arguments(
            tool.spec.name, tool.spec.parameters, '{"question": "Which?", "choices": ["Red", " dark\\n blue "]}'
        )
    )
    assert asked.choices == ("Red", "dark blue")


@pytest.mark.parametrize(
    "choices", ['["Red"]', '["Red", "red"]', '["Red", " "]', f'["Red", "{61 * "x"}"]', f"{[str(n) for n in range(11)]}"]
)
def test_what_is_no_choice_is_a_failure(choices: str) -> None:
    with pytest.raises(ToolFailure):
        AskQuestion().question(
            parse_arguments(
                AskQuestion.spec.name,
                AskQuestion.spec.parameters,
                f'{{"question": "Which?", "choices": {choices.replace(chr(39), chr(34))}}}',
            )
        )
