"""The tool ``ask_question``, with which an agent asks the user a question and waits for the answer."""

from maestro.domain.questions.question import (
    CHOICE_CHARS,
    LEAST_CHOICES,
    MOST_CHOICES,
    problem_of_choices,
    tidy_choices,
)
from maestro.tools.base import Arguments, ToolFailure, ToolQuestion, tool_spec

MAX_CHARS = 2000


class AskQuestion:
    """Asks the user for whom the agent works."""

    spec = tool_spec(
        "ask_question",
        "Ask the person you work for a question and wait for the answer, which is what this returns. It may take days. "
        "Use it only when you cannot go on without a decision or a fact that only a person has; ask one clear thing.",
        {
            "question": {"type": "string", "minLength": 1, "maxLength": MAX_CHARS, "description": "the question"},
            "context": {
                "type": "string",
                "maxLength": MAX_CHARS,
                "description": "what the person should know before they answer, if anything",
            },
            "choices": {
                "type": "array",
                "minItems": LEAST_CHOICES,
                "maxItems": MOST_CHOICES,
                "items": {"type": "string", "minLength": 1, "maxLength": CHOICE_CHARS},
                "description": "answers to choose from with one press, if you can name them, each as it stands on its "
                "button; the person may still answer in other words",
            },
        },
        ["question"],
    )
    idempotent = True
    read_only = False

    def question(self, arguments: Arguments) -> ToolQuestion:
        """Return the question; raises ``ToolFailure`` for a blank question or invalid choices."""
        text = arguments["question"].strip()
        if not text:
            raise ToolFailure("The question is empty. Write what you want to know.")
        choices = tidy_choices(arguments.get("choices", ()))
        problem = problem_of_choices(choices)
        if problem:
            raise ToolFailure(problem)
        return ToolQuestion(text, arguments.get("context", "").strip(), choices)
