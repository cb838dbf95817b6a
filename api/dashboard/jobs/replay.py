"""The pages that preview a resume, restart, what-if or cancellation, and start it."""

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import submit_async, without_empty
from api.dashboard.jobs.job import PAGE, missing_job_page, read_job
from api.dashboard.pages import lead_back, render
from api.guards import FOR_VIEWERS, OPERATOR, Parts, PasswordRoute, parts_of
from maestro.domain.errors import InvalidEdit, MaestroError, NotFound
from maestro.domain.fields import read
from maestro.domain.jobs.job import NO_EDITS, Job, JobEdits, edits_of
from maestro.domain.jobs.replay import END, START, ReplayMode
from maestro.domain.jobs.steps import purpose_of
from maestro.store.replays import preview_replay
from maestro.store.transaction import Transaction

POSITIONS = {START: "From the beginning, as a new job", END: "No step is left; the job is only closed"}
"""How the page describes the start of a replay that does not begin at a step."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class ReplayForm(BaseModel):
    """The form of a replay; the fields after ``edited`` apply only if it is set, and empty ones change nothing."""

    mode: ReplayMode = ReplayMode.RESUME
    edited: bool = False
    agent: str = ""
    model: str = ""
    prompt: str = ""

    @property
    def edits(self) -> JobEdits | None:
        """The edits of the replay, None to leave the job's edits as they are; raises ``InvalidEdit``."""
        if not self.edited:
            return None
        # Browsers send line ends as CR LF, but the stored prompt has LF.
        prompt = self.prompt.replace("\r\n", "\n") if self.prompt.strip() else ""
        return read(
            JobEdits, without_empty({"agent": self.agent.strip(), "model": self.model.strip(), "prompt": prompt})
        )

    @classmethod
    def of(cls, mode: ReplayMode, edits: JobEdits | None) -> "ReplayForm":
        """Return the form filled with these edits."""
        if edits is None:
            return cls(mode=mode)
        return cls(mode=mode, edited=True, **edits.model_dump(by_alias=False, exclude_none=True))

    @property
    def fields(self) -> dict[str, str]:
        """The hidden fields with which a confirmation sends the form again."""
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
    """Replay the job, and redirect to its new workflow run."""

    async def operation() -> str:
        return await parts.jobs.replay(job_id, form.mode, OPERATOR, form.edits)

    return await submit_async(
        operation,
        lambda running: lead_back(f"/queue/{running}"),
        lambda error: _plan_page(request, job_id, form, error),
    )


@router.get("/edit")
def edit_replay(request: Request, job_id: str, form: Annotated[ReplayForm, Query()]) -> HTMLResponse:
    """Show the form for another agent, model or prompt."""
    return _edit_page(request, job_id, form)


@router.get("/cancel")
def confirm_cancellation(request: Request, job_id: str) -> HTMLResponse:
    """Show what a cancellation does, and ask for confirmation."""
    return _cancellation_page(request, job_id)


@router.post("/cancel")
async def cancel_job(request: Request, parts: Parts, job_id: str) -> Response:
    """Cancel the job, and redirect to it."""
    return await submit_async(
        lambda: parts.jobs.cancel(job_id, OPERATOR),
        lambda job: lead_back(f"/queue/{job.id}"),
        lambda error: _cancellation_page(request, job_id, error),
    )


def _plan_page(request: Request, job_id: str, form: ReplayForm, problem: MaestroError | None = None) -> HTMLResponse:
    try:
        with parts_of(request).store.view() as tx:
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
        position=POSITIONS.get(plan.step) or purpose_of(plan.step),
        kept_steps=[purpose_of(step) for step in plan.kept],
        form=ReplayForm.of(form.mode, edits),
        problem=problem or plan.problem,
    )


def _edit_page(request: Request, job_id: str, form: ReplayForm, problem: MaestroError | None = None) -> HTMLResponse:
    try:
        with parts_of(request).store.view() as tx:
            content = read_job(tx, job_id)
            agents = sorted(agent.slug for agent in tx.agents.active())
            prompt = _request_text(tx, content.row)
    except NotFound as error:
        return missing_job_page(request, str(error))
    edits = edits_of(content.row)
    before = ReplayForm.of(form.mode, edits.model_copy(update={"prompt": edits.prompt or prompt or None}))
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
        with parts_of(request).store.view() as tx:
            content = read_job(tx, job_id)
    except NotFound as error:
        return missing_job_page(request, str(error))
    return render(request, "job-cancel.html", content=content, problem=problem)


def _without_unchanged_prompt(tx: Transaction, job: Job, edits: JobEdits | None) -> JobEdits | None:
    """Remove an unchanged prompt from the edits, because the form is filled with the original one."""
    if edits is None or edits.prompt is None or edits.prompt.strip() != _request_text(tx, job).strip():
        return edits
    others = edits.model_copy(update={"prompt": None})
    return others if others.any else NO_EDITS


def _request_text(tx: Transaction, job: Job) -> str:
    """Return the part of the original input that an operator may edit."""
    if job.task or job.inbox_id is None:
        return job.task
    return tx.inbox.read(job.inbox_id).content.replace("\r\n", "\n")
