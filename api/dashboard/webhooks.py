"""The page of webhooks, with forms that add, change, remove and rotate the secret of one."""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import FormAction, FormText, TextForm, form_routes, submit
from api.dashboard.pages import redirect_to, refusal_page, render
from api.guards import OPERATOR, Parts, PasswordRoute, parts_of
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.errors import MaestroError
from maestro.domain.fields import read
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.webhooks.webhook import NewWebhook, WebhookChange, WebhookWithSecret
from maestro.operations.background import WebhookOperations

PAGE = "/webhooks"
PAGE_SIZE = 25

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)
router.routes.extend(
    form_routes(
        PAGE,
        lambda request, error, **_: _render_page(request, _WebhookPageState(problem=error)),
        FormAction("/enable", "webhooks", WebhookOperations.change, change=WebhookChange(enabled=True)),
        FormAction("/disable", "webhooks", WebhookOperations.change, change=WebhookChange(enabled=False)),
        FormAction("/remove", "webhooks", WebhookOperations.remove),
    )
)


class WebhookForm(TextForm):
    """The form of a webhook, as texts that the operation validates."""

    path: str = ""
    name: str = ""
    agent: str = ""
    prompt_template: str = ""
    platform: str = "web"
    account: str = DEFAULT_ACCOUNT
    channel: str = ""
    thread: str = ""
    scheme: str = "standard"
    secret: str = ""
    per_minute: str = "60"


@dataclass(frozen=True)
class _WebhookPageState:
    """The entered text of the form, the path of the webhook that it changes, and the result."""

    form: WebhookForm = field(default_factory=WebhookForm)
    editing: str = ""
    problem: MaestroError | None = None
    made: WebhookWithSecret | None = None
    open: bool = False


@router.get("")
def show_webhooks(request: Request, parts: Parts, edit: str = "") -> HTMLResponse:
    """List the webhooks, with an empty form, or with the form filled from the webhook ``edit``."""
    if not edit:
        return _render_page(request, _WebhookPageState())
    try:
        webhook = parts.webhooks.show(edit)
    except MaestroError as error:
        return refusal_page(request, "webhooks", error)
    form = WebhookForm.from_view(webhook, secret="")
    return _render_page(request, _WebhookPageState(form, editing=webhook.path, open=True))


@router.post("")
def add_webhook(request: Request, parts: Parts, form: Annotated[WebhookForm, Form()]) -> Response:
    """Add a webhook and show its new secret this once; an error is shown on the page."""
    return submit(
        lambda: parts.webhooks.add(read(NewWebhook, form.fields()), OPERATOR),
        lambda made: _render_page(request, _WebhookPageState(made=made), HTTPStatus.CREATED),
        lambda error: _render_page(request, _WebhookPageState(form, problem=error, open=True)),
    )


@router.post("/change")
def change_webhook(request: Request, parts: Parts, form: Annotated[WebhookForm, Form()]) -> Response:
    """Change a webhook, and redirect to the list."""
    return submit(
        lambda: parts.webhooks.change(
            form.path, read(WebhookChange, form.fields("path", "scheme", "secret")), OPERATOR
        ),
        lambda _: redirect_to(PAGE),
        lambda error: _render_page(request, _WebhookPageState(form, form.path, error, open=True)),
    )


@router.post("/rotate")
def rotate_secret(request: Request, parts: Parts, path: FormText) -> Response:
    """Give a webhook a new secret, and show it this once."""
    return submit(
        lambda: parts.webhooks.rotate(path, OPERATOR),
        lambda made: _render_page(request, _WebhookPageState(made=made)),
        lambda error: _render_page(request, _WebhookPageState(problem=error)),
    )


def _render_page(request: Request, state: _WebhookPageState, status: HTTPStatus | None = None) -> HTMLResponse:
    cursor = request.query_params.get("cursor") or None
    parts = parts_of(request)
    with parts.store.view() as tx:
        agents = [agent for agent in tx.agents.all() if agent.status is not AgentStatus.ARCHIVED]
    return render(
        request,
        "webhooks.html",
        status,
        at=PAGE,
        agents=agents,
        page=parts.webhooks.list(PAGE_SIZE, cursor),
        first=cursor is None,
        state=state,
        problem=state.problem,
        origin=f"{request.url.scheme}://{request.headers['host']}",
    )
