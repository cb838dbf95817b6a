"""``maestro questions``: the questions of agents, and an operator's answers (docs/decisions.md: questions)."""

from typing import Annotated

from maestro.cli.framework.inputs import Limit, RowCursor, row_number
from maestro.cli.framework.operations import ACTOR, OperationCommands
from maestro.cli.framework.output import Columns, Portrait, Result, joined, listing
from maestro.domain.questions.question import QuestionStatus
from maestro.operations.questions import LIMIT, QuestionOperations

HELP = """List, show and answer the questions of agents.

A job that asks waits for the answer, days if need be; nobody else waits for it. Listing and answering work whether
Maestro runs or not; the running Maestro, or the next one that starts, goes on with the job.
"""
COLUMNS = Columns(
    "number=id status kind agent channel asked=asked_at expires=expires_at question=text",
    {"channel": lambda question: joined(question.platform, question.channel)},
)
PORTRAIT = Portrait(
    lambda question: f"{question.kind} {question.id}  {question.status}",
    hide="id kind status",
    lines_of={"choices": lambda question: [f"{number}. {choice}" for number, choice in enumerate(question.choices, 1)]},
)

Number = Annotated[str, "NUMBER: The number of the question, as `maestro questions list` shows it."]

app = OperationCommands(HELP, lambda at: QuestionOperations(at.store))


@app.operation("list")
def list_questions(
    questions: QuestionOperations,
    status: Annotated[list[QuestionStatus] | None, "Only these; may be given several times."] = None,
    limit: Limit = LIMIT,
    cursor: RowCursor = None,
) -> Result:
    """List questions, newest first."""
    page = questions.page(tuple(status or ()), cursor, limit)
    return page, listing(page, COLUMNS, "There are no such questions.")


@app.operation()
def show(questions: QuestionOperations, number: Number) -> Result:
    """Show a question: what is asked, of whom, and what was said to it."""
    question = questions.show(_parsed(number))
    return question, PORTRAIT.lines(question)


@app.operation()
def answer(
    questions: QuestionOperations,
    number: Number,
    text: Annotated[str, "TEXT: What the agent reads as the answer; the number of a choice means it."],
) -> Result:
    """Answer a question in words."""
    return _settle(questions, number, words=text)


@app.operation()
def approve(questions: QuestionOperations, number: Number) -> Result:
    """Say yes to an approval: the tool is called, or the conductor acts."""
    return _settle(questions, number, approves=True)


@app.operation()
def deny(questions: QuestionOperations, number: Number) -> Result:
    """Say no to an approval: nothing is done, and the agent is told."""
    return _settle(questions, number, approves=False)


def _parsed(number: str) -> int:
    """Return a number as people copy it, with or without its ``#``."""
    return row_number(number, "question", "NUMBER", mark="#")


def _settle(
    questions: QuestionOperations, number: str, *, words: str | None = None, approves: bool | None = None
) -> Result:
    """Store the operator's answer, and let the job go on."""
    question = questions.settle(_parsed(number), words, approves, ACTOR)
    follows = f"{question.job_id} goes on" if question.job_id else "the agent reads it when it asks again"
    return question, f"question {question.id} is {question.status}; {follows}"
