"""The page of one job: its input, its steps, and the prompt of each model call."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import NamedTuple

from fastapi import APIRouter, Request
from pydantic import JsonValue
from starlette.responses import HTMLResponse, Response

from api.dashboard.pages import render
from api.guards import PasswordRoute
from api.live import unchanged
from api.routes.dependencies import Number, Parts
from maestro.domain.context.views import RecordedCallView, TurnView, recorded_call_view
from maestro.domain.deliveries import DeliveryState
from maestro.domain.errors import NotFound
from maestro.domain.job_texts import JobPageTexts, RecordedAnswer
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.jobs.page import JobTimeline, RunTimeline, build_timeline, current_step
from maestro.domain.jobs.replay import is_script
from maestro.domain.jobs.steps import purpose_of
from maestro.domain.jobs.timeline import ActionView, CallView, StepView
from maestro.domain.jobs.views import JobDetail, JobRecord, job_detail
from maestro.store.transaction import Transaction

PAGE = "/queue/{job_id}"
SHORT = 600
"""Characters of a text that the page of a job shows at once; the rest is one click away."""
LONG = 6_000
"""Characters of one turn that the page of a prompt shows at once."""
ROOM = 100_000
"""Characters of all turns together that it shows at once: a long conversation shows less of each."""
LEAST = 200
"""Characters of each turn that it shows in any case."""
STEPS = 100
"""Steps that the page shows at once: a job that waited for days for an account has hundreds of runs."""
FOLDED = 1_200
"""Characters above which a turn of a prompt is folded."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class TextExcerpt(NamedTuple):
    """A text or its beginning; ``more`` is the number of characters left out."""

    text: str
    more: int = 0


@dataclass(frozen=True)
class CallTotals:
    """The sums over all model calls of a job."""

    calls: int
    answered: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int

    @classmethod
    def of(cls, calls: Sequence[CallView]) -> "CallTotals":
        """Return the sums of these calls."""
        return cls(
            calls=len(calls),
            answered=sum(call.state == "answered" for call in calls),
            input_tokens=sum(call.input_tokens for call in calls),
            output_tokens=sum(call.output_tokens for call in calls),
            cached_tokens=sum(call.cached_tokens for call in calls),
        )


@dataclass(frozen=True)
class OriginalJob:
    """The answer and the actions of the job to which a what-if belongs."""

    id: str
    answer: RecordedAnswer | None
    actions: Sequence[ActionView]


@dataclass(frozen=True)
class JobContent:
    """The content of a job's page."""

    job: JobDetail
    row: Job
    papers: JobPageTexts
    course: JobTimeline
    work: StepView | None
    sums: CallTotals
    real: OriginalJob | None = None
    whole: str = ""
    every: bool = False

    @property
    def stretches(self) -> Sequence[RunTimeline]:
        """The runs to show: the newest, or all if requested."""
        return self.course.runs if self.every else self.course.newest(STEPS)

    def text(self, name: str, text: str) -> TextExcerpt:
        """Return a text, in full if requested."""
        return excerpt(text, None if self.whole == name else SHORT)

    @property
    def held(self) -> bool:
        """Whether an unconfirmed chunk of the answer was held back and can be sent now."""
        unconfirmed = any(chunk.state is DeliveryState.UNCONFIRMED for chunk in self.job.deliveries)
        return unconfirmed and self.row.status is JobStatus.COMPLETED

    @property
    def asks_model(self) -> bool:
        """Whether a model answers: only then a restart can use another one."""
        return not (self.row.notice or is_script(self.row))

    @property
    def work_words(self) -> str:
        """The current work of the job, in words."""
        return purpose_of(self.work.step) if self.work is not None else ""

    @property
    def waited_ms(self) -> float | None:
        """The time that the job waited in its lane; None while it waits."""
        return _between(self.job.created_at, self.job.started_at)

    @property
    def took_ms(self) -> float | None:
        """The time from the start to the end of the job."""
        return _between(self.job.started_at, self.job.completed_at)

    @property
    def in_all_ms(self) -> float | None:
        """The time from the message to the end of the job."""
        return _between(self.job.created_at, self.job.completed_at)


@router.get("")
def show(request: Request, parts: Parts, job_id: str, whole: str = "", runs: str = "") -> Response:
    """Show a job; ``whole`` names the text that is shown to its end: message, task or answer.

    With ``runs`` every run is shown, however many there were.
    """
    same = unchanged(request)
    if same is not None:
        return same
    try:
        with parts.store.view() as tx:
            sheet = replace(read_job(tx, job_id, whole, parts.budgets().fallback_model), every=bool(runs))
    except NotFound as error:
        return gone(request, str(error))
    ui = parts.jobs.temporal.link(sheet.job).temporal_url
    return render(request, "job.html", title=f"{job_id} – Maestro", sheet=sheet, temporal_url=ui)


@router.get("/calls/{call_id}")
def show_call(request: Request, parts: Parts, job_id: str, call_id: Number, turn: int = 0) -> HTMLResponse:
    """Show one model call as the model saw it; ``turn``, counted from 1, is shown in full."""
    try:
        with parts.store.view() as tx:
            seen = recorded_call_view(tx.llm.requests.seen(job_id, call_id))
    except NotFound as error:
        return gone(request, str(error), job_id)
    tools = [(tool.name, tool.description, _schema(tool.parameters)) for tool in seen.tools]
    title = f"Prompt – {job_id} – Maestro"
    return render(request, "job-call.html", title=title, seen=seen, turns=_turns(seen, turn), tools=tools)


def read_job(tx: Transaction, job_id: str, whole: str = "", cheaper: str = "") -> JobContent:
    """Read everything about a job; raises ``NotFound``. ``cheaper`` is the model for budgets that are used up."""
    record = tx.jobs.lists.job(job_id, cheaper)
    row, job = record.listed.job, job_detail(record)
    return JobContent(
        job=job,
        row=row,
        papers=tx.jobs.texts.of(row),
        course=build_timeline(record, job, tx.now),
        work=current_step(job),
        sums=CallTotals.of(job.calls),
        real=_real(tx, record),
        whole=whole,
    )


def gone(request: Request, problem: str, job_id: str = "") -> HTMLResponse:
    """Return the page for a job that does not exist."""
    return render(
        request, "job-gone.html", HTTPStatus.NOT_FOUND, title="Not found – Maestro", problem=problem, job_id=job_id
    )


def excerpt(text: str, most: int | None) -> TextExcerpt:
    """Return the beginning of a text; all of it for None, or if the rest is shorter than the link to it."""
    if most is None or len(text) <= most + most // 10:
        return TextExcerpt(text)
    return TextExcerpt(text[:most], len(text) - most)


class PromptEntry(NamedTuple):
    """A message of a prompt by its number, and whether it is folded."""

    number: int
    turn: TurnView
    text: TextExcerpt
    folded: bool


def _turns(seen: RecordedCallView, whole: int) -> Sequence[PromptEntry]:
    """Return the messages of a prompt; the last one, which is answered, is never folded."""
    fits = sum(min(len(turn.text), LONG) for turn in seen.messages) <= ROOM
    most = LONG if fits else max(LEAST, ROOM // len(seen.messages))
    return [
        PromptEntry(
            number,
            turn,
            excerpt(turn.text, None if number == whole else most),
            len(turn.text) > FOLDED and number not in (whole, len(seen.messages)),
        )
        for number, turn in enumerate(seen.messages, start=1)
    ]


def _real(tx: Transaction, record: JobRecord) -> OriginalJob | None:
    """Return the actual answer of the job to which a what-if belongs."""
    job = record.listed.job
    original = tx.jobs.find(job.restarted_from) if job.what_if and job.restarted_from is not None else None
    if original is None:
        return None
    actions = [ActionView.model_validate(action) for action in tx.jobs.actions.of(original.id)]
    return OriginalJob(original.id, tx.jobs.texts.answer(original), actions)


def _schema(parameters: JsonValue) -> str:
    return json.dumps(parameters, indent=2, ensure_ascii=False)


def _between(began: datetime | None, ended: datetime | None) -> float | None:
    return (ended - began) / timedelta(milliseconds=1) if began is not None and ended is not None else None
