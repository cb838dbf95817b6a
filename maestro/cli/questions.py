"""List, show and answer the questions of agents.

A job with an open question waits for the answer, for days if need be, and delays no other job. You can list and answer
questions while Maestro is stopped; the job goes on as soon as Maestro runs.
"""

from typing import Annotated

from maestro.cli.framework.commands import QueryOptions, row_number
from maestro.cli.framework.operations import ACTOR, OperationCommands
from maestro.cli.framework.output import Columns, Portrait, Result, join_parts
from maestro.domain.questions.views import QuestionView
from maestro.operations.questions import QuestionOperations, QuestionQuery

COLUMNS = Columns(
    "number=id status kind agent channel asked=asked_at expires=expires_at question=text",
    {"channel": lambda question: join_parts(question.platform, question.channel)},
)
PORTRAIT = Portrait(
    lambda question: f"{question.kind} {question.id}  {question.status}",
    hide="id kind status",
    lines_of={"choices": lambda question: [f"{number}. {choice}" for number, choice in enumerate(question.choices, 1)]},
)

Number = Annotated[
    int, "NUMBER: The number of the question, as `maestro questions list` shows it.", row_number("question", "NUMBER")
]


def _result_text(question: QuestionView) -> str:
    follows = f"{question.job_id} goes on" if question.job_id else "the agent reads it when it asks again"
    return f"question {question.id} is {question.status}; {follows}"


app = OperationCommands(__doc__, lambda at: QuestionOperations(at.store), Number)
app.list("List questions, newest first.", COLUMNS, "No questions match.", QueryOptions(QuestionQuery))
app.show("Show a question: its text, its user and its answer.", PORTRAIT)


@app.operation()
def answer(
    questions: QuestionOperations,
    number: Number,
    text: Annotated[str, "TEXT: The answer for the agent; the number of a choice stands for that choice."],
) -> Result:
    """Answer a question with a text."""
    question = questions.settle(number, text, None, ACTOR)
    return question, _result_text(question)


app.item_command(
    "approve",
    "Approve a tool call, or an action of a conductor.",
    lambda questions, number: questions.settle(number, None, True, ACTOR),
    _result_text,
)
app.item_command(
    "deny",
    "Deny a tool call, or an action of a conductor; the agent is told so.",
    lambda questions, number: questions.settle(number, None, False, ACTOR),
    _result_text,
)
