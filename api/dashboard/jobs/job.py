"""The pages of one job: what it did, the prompt of each model call, and the preview of a replay or cancellation."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import read_edits, submit_async
from api.dashboard.pages import not_modified, redirect_to_page, render
from api.guards import FOR_VIEWERS, OPERATOR, Number, Parts, PasswordRoute, request_parts
from maestro.domain.context.views import JobPageTexts, RecordedAnswer, RecordedCallView, TurnView, recorded_call_view
from maestro.domain.deliveries import DeliveryState
from maestro.domain.errors import InvalidEdit, MaestroError, NotFound
from maestro.domain.jobs.job import NO_EDITS, Job, JobEdits, JobStatus, job_edits
from maestro.domain.jobs.page import JobTimeline, RunTimeline, build_timeline, current_step
from maestro.domain.jobs.replay import END_STEP, START_STEP, ReplayMode, is_script
from maestro.domain.jobs.steps import step_purpose
from maestro.domain.jobs.views import ActionView, JobDetail, StepView, job_detail
from maestro.domain.values import read
from maestro.store.replays import preview_replay
from maestro.store.transaction import Transaction

PAGE = "/queue/{job_id}"
LONG = 6_000
"""The most characters of one message on the page of a prompt."""
TOTAL_CHARS = 100_000
"""The most characters of all messages on the page of a prompt; above it, each message is cut shorter."""
LEAST = 200
"""Characters to which each message on the page of a prompt may always extend."""
STEPS = 100
"""The most steps on the page of a job; after days of waiting, a job has hundreds of workflow runs."""
FOLDED = 1_200
"""The page of a prompt folds each message with more characters than this."""
POSITIONS = {START_STEP: "From the beginning, as a new job", END_STEP: "No step is left; the job is only closed"}
"""The words for the start of a replay that does not begin at a step of the job."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class TextExcerpt(NamedTuple):
    """A text or the beginning of a text; ``more`` is the number of characters left out."""

    text: str
    more: int = 0


@dataclass(frozen=True)
class OriginalJob:
    """The original job of a what-if, with its answer and actions, which the page of the what-if shows."""

    id: str
    answer: RecordedAnswer | None
    actions: Sequence[ActionView]


@dataclass(frozen=True)
class JobContent:
    """Everything that the page of a job shows."""

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
        """The workflow runs to show: the newest ones, or all if the address asks for all."""
        return self.timeline.runs if self.all_runs else self.timeline.newest_runs(STEPS)

    def text(self, name: str, text: str) -> TextExcerpt:
        """Return an excerpt of a text of the job, or the full text if the address names it in ``whole``."""
        return excerpt(text, None if self.whole == name else 600)

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
        return step_purpose(self.step.step) if self.step is not None else ""


@router.get("")
def show_job(request: Request, parts: Parts, job_id: str, whole: str = "", runs: str = "") -> Response:
    """Show a job; ``whole`` names the text to show in full: message, task or answer.

    With ``runs`` every workflow run is shown, else only the newest.
    """
    if same := not_modified(request):
        return same
    try:
        with parts.store.view() as tx:
            content = replace(read_job(tx, job_id, whole, parts.budgets().cheaper_model), all_runs=bool(runs))
    except NotFound as error:
        return missing_job_page(request, str(error))
    return render(request, "job.html", content=replace(content, job=parts.jobs.links.link(content.job)))


@router.get("/calls/{call_id}")
def show_call(request: Request, parts: Parts, job_id: str, call_id: Number, turn: int = 0) -> HTMLResponse:
    """Show the prompt of a model call as the model got it; the message with number ``turn``, from 1, in full."""
    try:
        with parts.store.view() as tx:
            call = recorded_call_view(tx.llm.requests.get_recorded_call(job_id, call_id))
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
    """Read the content of a job's page; ``cheaper`` is the model after a budget is used up. Raises ``NotFound``."""
    record = tx.jobs.lists.read_record(job_id, cheaper)
    row, job = record.listed.job, job_detail(record)
    return JobContent(
        job=job,
        row=row,
        texts=tx.jobs.texts.read_texts_of_job(row),
        timeline=build_timeline(record, job, tx.now),
        step=current_step(job),
        original=_read_original(tx, row),
        whole=whole,
    )


def missing_job_page(request: Request, problem: str, job_id: str = "") -> HTMLResponse:
    """Return the page that says that a job or a model call of it does not exist."""
    return render(request, "job-gone.html", HTTPStatus.NOT_FOUND, problem=problem, job_id=job_id)


def excerpt(text: str, limit: int | None) -> TextExcerpt:
    """Return the first ``limit`` characters of a text, or the full text if it is at most 10 % longer."""
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
    """Return the messages of a prompt for the page; the last one, which the model answered, is never folded."""
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
    actions = [ActionView.model_validate(action) for action in tx.jobs.actions.list_actions_of_job(original.id)]
    return OriginalJob(original.id, tx.jobs.texts.find_answer(original), actions)


class ReplayForm(BaseModel):
    """The form of a replay; ``agent``, ``model`` and ``prompt`` apply only with ``edited``, if they are not empty."""

    mode: ReplayMode = ReplayMode.RESUME
    edited: bool = False
    agent: str = ""
    model: str = ""
    prompt: str = ""

    @property
    def edits(self) -> JobEdits | None:
        """The edits of the replay; None leaves the job's earlier edits in effect. Raises ``InvalidEdit``."""
        return read(JobEdits, read_edits(self.agent, self.model, self.prompt)) if self.edited else None

    @classmethod
    def from_edits(cls, mode: ReplayMode, edits: JobEdits | None) -> "ReplayForm":
        """Return the form filled with a mode and edits."""
        if edits is None:
            return cls(mode=mode)
        return cls(mode=mode, edited=True, **edits.model_dump(by_alias=False, exclude_none=True))

    @property
    def fields(self) -> dict[str, str]:
        """The hidden form fields with which the confirmation page sends this form again."""
        edits = {"edited": "true", "agent": self.agent, "model": self.model, "prompt": self.prompt}
        return {"mode": str(self.mode), **(edits if self.edited else {})}


@router.get("/replay")
def confirm_replay(request: Request, job_id: str, mode: ReplayMode = ReplayMode.RESUME) -> HTMLResponse:
    """Show what a replay would do, cost and repeat, and ask for confirmation."""
    return _plan_page(request, job_id, ReplayForm(mode=mode))


@router.post("/replay/preview", openapi_extra=FOR_VIEWERS)
def confirm_edited_replay(request: Request, job_id: str, form: Annotated[ReplayForm, Form()]) -> HTMLResponse:
    """Show what a replay with edits would do, and ask for confirmation; an error is shown above the form."""
    return _plan_page(request, job_id, form)


@router.post("/replay")
async def replay_job(request: Request, parts: Parts, job_id: str, form: Annotated[ReplayForm, Form()]) -> Response:
    """Replay the job, and redirect to the page of the job that runs."""

    async def operation() -> str:
        return await parts.jobs.replay(job_id, form.mode, OPERATOR, form.edits)

    return await submit_async(
        operation,
        lambda running: redirect_to_page(f"/queue/{running}"),
        lambda error: _plan_page(request, job_id, form, error),
    )


@router.get("/edit")
def edit_replay(request: Request, job_id: str, form: Annotated[ReplayForm, Query()]) -> HTMLResponse:
    """Show the form that selects another agent, model or prompt for a replay."""
    return _edit_page(request, job_id, form)


@router.get("/cancel")
def confirm_cancellation(request: Request, job_id: str) -> HTMLResponse:
    """Show what a cancellation of the job does, and ask for confirmation."""
    return _cancellation_page(request, job_id)


@router.post("/cancel")
async def cancel_job(request: Request, parts: Parts, job_id: str) -> Response:
    """Cancel the job, and redirect to its page."""
    return await submit_async(
        lambda: parts.jobs.cancel(job_id, OPERATOR),
        lambda job: redirect_to_page(f"/queue/{job.id}"),
        lambda error: _cancellation_page(request, job_id, error),
    )


def _plan_page(request: Request, job_id: str, form: ReplayForm, problem: MaestroError | None = None) -> HTMLResponse:
    try:
        with request_parts(request).store.view() as tx:
            job = tx.jobs.get(job_id)
            edits = _without_unchanged_prompt(tx, job, form.edits)
            plan, content = preview_replay(tx, job_id, form.mode, edits), read_job(tx, job_id)
    except NotFound as error:
        return missing_job_page(request, str(error))
    except InvalidEdit as error:
        return _edit_page(request, job_id, form, error)
    return render(
        request,
        "job-replay.html",
        content=content,
        plan=plan,
        position=POSITIONS.get(plan.step) or step_purpose(plan.step),
        kept_steps=[step_purpose(step) for step in plan.kept],
        form=ReplayForm.from_edits(form.mode, edits),
        problem=problem or plan.problem,
    )


def _edit_page(request: Request, job_id: str, form: ReplayForm, problem: MaestroError | None = None) -> HTMLResponse:
    try:
        with request_parts(request).store.view() as tx:
            content = read_job(tx, job_id)
            agents = sorted(agent.slug for agent in tx.agents.list_active_agents())
            prompt = _request_text(tx, content.row)
    except NotFound as error:
        return missing_job_page(request, str(error))
    edits = job_edits(content.row)
    before = ReplayForm.from_edits(form.mode, edits.model_copy(update={"prompt": edits.prompt or prompt or None}))
    return render(
        request,
        "job-edit.html",
        content=content,
        agents=agents,
        form=form if form.edited else before,
        prompt=prompt,
        problem=problem,
    )


def _cancellation_page(request: Request, job_id: str, problem: MaestroError | None = None) -> HTMLResponse:
    try:
        with request_parts(request).store.view() as tx:
            content = read_job(tx, job_id)
    except NotFound as error:
        return missing_job_page(request, str(error))
    return render(request, "job-cancel.html", content=content, problem=problem)


def _without_unchanged_prompt(tx: Transaction, job: Job, edits: JobEdits | None) -> JobEdits | None:
    """Return the edits without a prompt that equals the original, with which the form was filled."""
    if edits is None or edits.prompt is None or edits.prompt.strip() != _request_text(tx, job).strip():
        return edits
    others = edits.model_copy(update={"prompt": None})
    return others if others.any else NO_EDITS


def _request_text(tx: Transaction, job: Job) -> str:
    """Return the part of a job's input that an operator may edit: the task or the message."""
    if job.task or job.inbox_id is None:
        return job.task
    return tx.inbox.read(job.inbox_id).content.replace("\r\n", "\n")
