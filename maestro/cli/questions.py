"""``maestro questions``: what agents ask people, and an operator's answers (docs/decisions.md: questions)."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from maestro.cli.checked import row_number
from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import Limit, RowCursor, table_page
from maestro.cli.table import plain
from maestro.domain.questions.question import QuestionStatus, of_operator
from maestro.domain.questions.views import QuestionPage, QuestionView, question_view
from maestro.store.store import Store

LIMIT = 50
NOTHING = "There are no such questions."
COLUMNS = ("number", "status", "kind", "agent", "channel", "asked", "expires", "question")

HELP = """List, show and answer the questions of agents.

A job that asks waits for the answer, days if need be; nobody else waits for it. Listing and answering work whether
Maestro runs or not; the running Maestro, or the next one that starts, goes on with the job.
"""

Number = Annotated[
    str, typer.Argument(metavar="NUMBER", help="The number of the question, as `maestro questions list` shows it.")
]

app = Commands(HELP)


@app.command("list")
def list_questions(
    given: Given,
    status: Annotated[list[QuestionStatus] | None, typer.Option(help="Only these; may be given several times.")] = None,
    limit: Limit = LIMIT,
    cursor: RowCursor = None,
) -> None:
    """List questions, newest first."""
    with opened(given) as at, at.store.view() as tx:
        found, following = tx.jobs.questions.page(tuple(status or ()), cursor, limit)
    items = tuple(question_view(one.question, one.agent, one.job, tx.now) for one in found)
    page = QuestionPage(items=items, next=str(following) if following else None)
    write(page, _listing(page), given.as_json)


@app.command()
def show(given: Given, number: Number) -> None:
    """Show a question: what is asked, of whom, and what was said to it."""
    with opened(given) as at:
        question = _shown(at.store, _parsed(number))
    write(question, _portrait(question), given.as_json)


@app.command()
def answer(
    given: Given,
    number: Number,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What the agent reads as the answer; the number of a choice means it.")
    ],
) -> None:
    """Answer a question in words."""
    with opened(given) as at:
        _settle(at.store, _parsed(number), given.as_json, words=text)


@app.command()
def approve(given: Given, number: Number) -> None:
    """Say yes to an approval: the tool is called, or the conductor acts."""
    with opened(given) as at:
        _settle(at.store, _parsed(number), given.as_json, approves=True)


@app.command()
def deny(given: Given, number: Number) -> None:
    """Say no to an approval: nothing is done, and the agent is told."""
    with opened(given) as at:
        _settle(at.store, _parsed(number), given.as_json, approves=False)


def _parsed(number: str) -> int:
    """Read a number as people copy it, with or without its ``#``."""
    return row_number(number, "question", "NUMBER", mark="#")


def _settle(
    store: Store, number: int, as_json: bool, *, words: str | None = None, approves: bool | None = None
) -> None:
    """Keep the operator's answer, and let the job go on."""
    with store.begin() as tx:
        settled = of_operator(tx.jobs.questions.get(number).question, words, approves, tx.now)
        tx.jobs.answer_question(settled, ACTOR)
    question = _shown(store, number)
    follows = f"{question.job_id} goes on" if question.job_id else "the agent reads it when it asks again"
    write(question, [f"question {question.id} is {question.status}; {follows}"], as_json)


def _shown(store: Store, number: int) -> QuestionView:
    with store.view() as tx:
        asked = tx.jobs.questions.get(number)
    return question_view(asked.question, asked.agent, asked.job, tx.now)


def _listing(page: QuestionPage) -> Iterator[str]:
    yield from table_page(COLUMNS, list(map(_row, page.items)), NOTHING, page.next)


def _row(question: QuestionView) -> tuple[str, ...]:
    return (
        str(question.id),
        question.status,
        question.kind,
        question.agent or "-",
        "/".join(filter(None, (question.platform, question.channel))),
        _moment(question.asked_at),
        _moment(question.expires_at),
        question.text,
    )


def _portrait(question: QuestionView) -> Iterator[str]:
    yield f"{question.kind} {question.id}  {question.status}"
    facts = (
        ("question", question.text),
        ("context", question.context),
        ("choices", ", ".join(f"{number}. {choice}" for number, choice in enumerate(question.choices, 1))),
        ("agent", question.agent or ""),
        ("job", question.job_id or ""),
        ("channel", "/".join(filter(None, (question.platform, question.account, question.channel, question.thread)))),
        ("of", question.asked_of or ", ".join(question.approvers)),
        ("asked", _moment(question.asked_at)),
        ("expires", _moment(question.expires_at)),
        ("answer", question.answer),
        ("by", question.answered_by),
        ("ended", _moment(question.answered_at)),
    )
    yield from (f"  {name:<13} {plain(value)}" for name, value in facts if value)


def _moment(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""
