"""The page of webhooks: made, changed, given other secrets and removed, with plain forms."""

from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import TextForm, submit
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.guards import OPERATOR, PasswordRoute
from api.routes.dependencies import Parts, parts_of
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.errors import MaestroError
from maestro.domain.fields import read
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.webhooks.views import NewWebhook, WebhookChange, WebhookWithSecret

PAGE = "/webhooks"
TITLE = "Webhooks – Maestro"
SHOWN = 25

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Path = Annotated[str, Form()]


class WebhookForm(TextForm):
    """What stands in the form; what is wrong with it is said by the rules of what it becomes."""

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
    """What the page is told beside the list: what was typed, for which webhook, and what came of it."""

    typed: WebhookForm = field(default_factory=WebhookForm)
    editing: str = ""
    problem: MaestroError | None = None
    made: WebhookWithSecret | None = None
    open: bool = False


@router.get("")
def show(request: Request, parts: Parts, edit: str = "") -> HTMLResponse:
    """List the webhooks, and offer to make another, or to change the one that is named."""
    if not edit:
        return _page(request, _WebhookPageState())
    try:
        webhook = parts.webhooks.show(edit)
    except MaestroError as error:
        return refused(request, "webhooks", error)
    typed = WebhookForm(
        **{name: str(value) for name, value in webhook.model_dump(by_alias=False).items() if name in _FORM_FIELDS}
    )
    return _page(request, _WebhookPageState(typed, editing=webhook.path, open=True))


@router.post("")
def make(request: Request, parts: Parts, typed: Annotated[WebhookForm, Form()]) -> Response:
    """Make a webhook, and show its secret if it was made, the only time; what cannot be made is said on the page."""
    return submit(
        lambda: parts.webhooks.add(read(NewWebhook, typed.fields()), OPERATOR),
        lambda made: _page(request, _WebhookPageState(made=made), HTTPStatus.CREATED),
        lambda error: _page(request, _WebhookPageState(typed, problem=error, open=True)),
    )


@router.post("/change")
def change(request: Request, parts: Parts, typed: Annotated[WebhookForm, Form()]) -> Response:
    """Change a webhook, and lead back to the list."""
    return submit(
        lambda: parts.webhooks.change(
            typed.path, read(WebhookChange, typed.fields("path", "scheme", "secret")), OPERATOR
        ),
        _to_list,
        lambda error: _page(request, _WebhookPageState(typed, typed.path, error, open=True)),
    )


@router.post("/rotate")
def rotate(request: Request, parts: Parts, path: Path) -> Response:
    """Give a webhook another secret, and show it, the only time."""
    return submit(
        lambda: parts.webhooks.rotate(path, OPERATOR),
        lambda made: _page(request, _WebhookPageState(made=made)),
        partial(_refused, request),
    )


@router.post("/enable")
def enable(request: Request, parts: Parts, path: Path) -> Response:
    """Let a webhook take deliveries, and lead back to the list."""
    change = WebhookChange(enabled=True)
    return submit(lambda: parts.webhooks.change(path, change, OPERATOR), _to_list, partial(_refused, request))


@router.post("/disable")
def disable(request: Request, parts: Parts, path: Path) -> Response:
    """Let a webhook take no deliveries, and lead back to the list."""
    change = WebhookChange(enabled=False)
    return submit(lambda: parts.webhooks.change(path, change, OPERATOR), _to_list, partial(_refused, request))


@router.post("/remove")
def remove(request: Request, parts: Parts, path: Path) -> Response:
    """Remove a webhook, and lead back to the list."""
    return submit(lambda: parts.webhooks.remove(path, OPERATOR), _to_list, partial(_refused, request))


def _to_list(_: object) -> Response:
    return lead_back(PAGE)


def _refused(request: Request, error: MaestroError) -> Response:
    return _page(request, _WebhookPageState(problem=error))


def _page(request: Request, shown: _WebhookPageState, status: HTTPStatus | None = None) -> HTMLResponse:
    cursor = request.query_params.get("cursor") or None
    parts = parts_of(request)
    page = parts.webhooks.list(SHOWN, cursor)
    with parts.store.view() as tx:
        agents = [one for one in tx.agents.all() if one.status is not AgentStatus.ARCHIVED]
    return render(
        request,
        "webhooks.html",
        status,
        at=PAGE,
        title=TITLE,
        agents=agents,
        webhooks=page.items,
        following=page.next,
        first=cursor is None,
        shown=shown,
        problem=shown.problem,
        address=f"{request.url.scheme}://{request.headers['host']}",
    )


_FORM_FIELDS = set(WebhookForm.model_fields) - {"secret"}
