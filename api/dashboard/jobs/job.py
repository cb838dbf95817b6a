"""The page of one job: its input, its steps, its answer, and the prompt of each model call."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.pages import not_modified, render
from api.guards import Number, Parts, PasswordRoute
from maestro.domain.context.views import JobPageTexts, RecordedAnswer, RecordedCallView, TurnView, recorded_call_view
from maestro.domain.deliveries import DeliveryState
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.jobs.page import JobTimeline, RunTimeline, build_timeline, current_step
from maestro.domain.jobs.replay import is_script
from maestro.domain.jobs.steps import purpose_of
from maestro.domain.jobs.views import ActionView, JobDetail, StepView, job_detail
from maestro.store.transaction import Transaction

PAGE = "/queue/{job_id}"
SHORT = 600
"""Characters of a text that the page of a job shows; a link shows the whole text."""
LONG = 6_000
"""Characters of one message that the page of a prompt shows."""
TOTAL_CHARS = 100_000
"""Characters of all messages together that the page of a prompt shows: of a long conversation, less of each."""
LEAST = 200
"""Characters that the page of a prompt shows of each message in any case."""
STEPS = 100
"""Steps that the page of a job shows; a job that waited days for an account has hundreds of workflow runs."""
FOLDED = 1_200
"""Characters above which the page shows a message of a prompt folded."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class TextExcerpt(NamedTuple):
    """A whole text, or its beginning; ``more`` is the number of characters left out."""

    text: str
    more: int = 0


@dataclass(frozen=True)
class OriginalJob:
    """The answer and the actions of the original job, for the page of its what-if."""

    id: str
    answer: RecordedAnswer | None
    actions: Sequence[ActionView]


@dataclass(frozen=True)
class JobContent:
    """The content of the page of a job."""

    job: JobDetail
    row: Job
    texts: JobPageTexts
    timeline: JobTimeline
    step: StepView | None
    original: OriginalJob | None = None
    whole: str = ""
    all_runs: bool = False

    @property
    def runs(self) -> Sequence[RunTimeline]:
        """The workflow runs to show: the newest, or all if requested."""
        return self.timeline.runs if self.all_runs else self.timeline.newest_runs(STEPS)

    def text(self, name: str, text: str) -> TextExcerpt:
        """Return a text of the job, in full if the address asks for it by this name."""
        return excerpt(text, None if self.whole == name else SHORT)

    @property
    def can_send_again(self) -> bool:
        """Whether the outcome of a send is unknown, so that the operator may repeat the send."""
        unconfirmed = any(chunk.state is DeliveryState.UNCONFIRMED for chunk in self.job.deliveries)
        return unconfirmed and self.row.status is JobStatus.COMPLETED

    @property
    def asks_model(self) -> bool:
        """Whether a model answers this job, so that a restart can use another model."""
        return not (self.row.notice or is_script(self.row))

    @property
    def step_purpose(self) -> str:
        """The purpose of the job's current step, in words."""
        return purpose_of(self.step.step) if self.step is not None else ""

    @property
    def waited_ms(self) -> float | None:
        """Milliseconds that the job waited in its lane; None while it waits."""
        return _milliseconds_between(self.job.created_at, self.job.started_at)

    @property
    def took_ms(self) -> float | None:
        """Milliseconds from the start to the end of the job; None before its end."""
        return _milliseconds_between(self.job.started_at, self.job.completed_at)

    @property
    def in_all_ms(self) -> float | None:
        """Milliseconds from the incoming message to the end of the job; None before its end."""
        return _milliseconds_between(self.job.created_at, self.job.completed_at)


@router.get("")
def show_job(request: Request, parts: Parts, job_id: str, whole: str = "", runs: str = "") -> Response:
    """Show a job; ``whole`` names the text to show in full: message, task or answer.

    With ``runs`` every workflow run is shown, else only the newest.
    """
    same = not_modified(request)
    if same is not None:
        return same
    try:
        with parts.store.view() as tx:
            content = replace(read_job(tx, job_id, whole, parts.budgets().fallback_model), all_runs=bool(runs))
    except NotFound as error:
        return missing_job_page(request, str(error))
    url = parts.jobs.temporal.link(content.job).temporal_url
    return render(request, "job.html", content=content, temporal_url=url)


@router.get("/calls/{call_id}")
def show_call(request: Request, parts: Parts, job_id: str, call_id: Number, turn: int = 0) -> HTMLResponse:
    """Show the prompt of a model call as the model got it; the message number ``turn``, from 1, is shown in full."""
    try:
        with parts.store.view() as tx:
            call = recorded_call_view(tx.llm.requests.recorded_call(job_id, call_id))
    except NotFound as error:
        return missing_job_page(request, str(error), job_id)
    return render(
        request,
        "job-call.html",
        call=call,
        entries=_prompt_entries(call, turn),
        schema=partial(json.dumps, indent=2, ensure_ascii=False),
    )


def read_job(tx: Transaction, job_id: str, whole: str = "", cheaper: str = "") -> JobContent:
    """Read the content of a job's page; ``cheaper`` is the model for used-up budgets. Raises ``NotFound``."""
    record = tx.jobs.lists.job(job_id, cheaper)
    row, job = record.listed.job, job_detail(record)
    return JobContent(
        job=job,
        row=row,
        texts=tx.jobs.texts.of_job(row),
        timeline=build_timeline(record, job, tx.now),
        step=current_step(job),
        original=_read_original(tx, row),
        whole=whole,
    )


def missing_job_page(request: Request, problem: str, job_id: str = "") -> HTMLResponse:
    """Return the page for a job that does not exist."""
    return render(request, "job-gone.html", HTTPStatus.NOT_FOUND, problem=problem, job_id=job_id)


def excerpt(text: str, limit: int | None) -> TextExcerpt:
    """Return the beginning of a text; all of it without a limit, or if it is at most a tenth longer."""
    if limit is None or len(text) <= limit + limit // 10:
        return TextExcerpt(text)
    return TextExcerpt(text[:limit], len(text) - limit)


class PromptEntry(NamedTuple):
    """A message of a prompt with its number, and whether the page shows the message folded."""

    number: int
    message: TurnView
    text: TextExcerpt
    folded: bool


def _prompt_entries(call: RecordedCallView, whole: int) -> Sequence[PromptEntry]:
    """Return the messages of a prompt for the page; the last one, which the model answers, is never folded."""
    fits = sum(min(len(message.text), LONG) for message in call.messages) <= TOTAL_CHARS
    limit = LONG if fits else max(LEAST, TOTAL_CHARS // len(call.messages))
    return [
        PromptEntry(
            number,
            message,
            excerpt(message.text, None if number == whole else limit),
            len(message.text) > FOLDED and number not in (whole, len(call.messages)),
        )
        for number, message in enumerate(call.messages, start=1)
    ]


def _read_original(tx: Transaction, job: Job) -> OriginalJob | None:
    """Return the answer and actions of the original job of a what-if; None for other jobs."""
    original = tx.jobs.find(job.restarted_from) if job.what_if and job.restarted_from is not None else None
    if original is None:
        return None
    actions = [ActionView.model_validate(action) for action in tx.jobs.actions.of_job(original.id)]
    return OriginalJob(original.id, tx.jobs.texts.answer(original), actions)


def _milliseconds_between(began: datetime | None, ended: datetime | None) -> float | None:
    return (ended - began) / timedelta(milliseconds=1) if began is not None and ended is not None else None
