"""The page of webhooks: made, changed, given other secrets and removed, with plain forms."""

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, RedirectResponse, Response

from api.dashboard.pages import render
from api.dashboard.refusals import refused
from api.errors import status_of
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts, parts_of
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.errors import MaestroError
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.reading import read
from maestro.domain.webhooks.edits import NewWebhook, Rotation, WebhookChange
from maestro.domain.webhooks.views import MadeWebhook

PAGE = "/webhooks"
TITLE = "Webhooks – Maestro"
SHOWN = 25

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Path = Annotated[str, Form()]


class Typed(BaseModel):
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

    def fields(self, *left_out: str) -> dict[str, object]:
        """Return what was typed, without the blanks around it."""
        return {name: text.strip() for name, text in self.model_dump(exclude=set(left_out)).items()}


@dataclass(frozen=True)
class _Shown:
    """What the page is told beside the list: what was typed, for which webhook, and what came of it."""

    typed: Typed = field(default_factory=Typed)
    editing: str = ""
    problem: str = ""
    made: MadeWebhook | None = None
    open: bool = False


@router.get("")
def show(request: Request, parts: Parts, edit: str = "") -> HTMLResponse:
    """List the webhooks, and offer to make another, or to change the one that is named."""
    if not edit:
        return _page(request, _Shown())
    try:
        with parts.store.view() as tx:
            webhook = tx.webhooks.view(tx.webhooks.get(edit))
    except MaestroError as error:
        return refused(request, "webhooks", error)
    typed = Typed(**{name: str(value) for name, value in webhook.model_dump(by_alias=False).items() if name in _TYPED})
    return _page(request, _Shown(typed, editing=webhook.path, open=True))


@router.post("")
def make(request: Request, parts: Parts, typed: Annotated[Typed, Form()]) -> HTMLResponse:
    """Make a webhook, and show its secret if it was made, the only time; what cannot be made is said on the page."""
    try:
        made = parts.webhooks.add(read(NewWebhook, typed.fields()), OPERATOR)
    except MaestroError as error:
        return _page(request, _Shown(typed, problem=str(error), open=True), status_of(error))
    return _page(request, _Shown(made=made), HTTPStatus.CREATED)


@router.post("/change")
def change(request: Request, parts: Parts, typed: Annotated[Typed, Form()]) -> Response:
    """Change a webhook, and lead back to the list."""
    try:
        wanted = read(WebhookChange, typed.fields("path", "scheme", "secret"))
        parts.webhooks.change(typed.path, wanted, OPERATOR)
    except MaestroError as error:
        return _page(request, _Shown(typed, typed.path, str(error), open=True), status_of(error))
    return _back()


@router.post("/rotate")
def rotate(request: Request, parts: Parts, path: Path) -> HTMLResponse:
    """Give a webhook another secret, and show it, the only time."""
    try:
        made = parts.webhooks.rotate(path, Rotation(), OPERATOR)
    except MaestroError as error:
        return _page(request, _Shown(problem=str(error)), status_of(error))
    return _page(request, _Shown(made=made))


@router.post("/enable")
def enable(request: Request, parts: Parts, path: Path) -> Response:
    """Let a webhook take deliveries, and lead back to the list."""
    return _done(request, lambda: parts.webhooks.change(path, WebhookChange(enabled=True), OPERATOR))


@router.post("/disable")
def disable(request: Request, parts: Parts, path: Path) -> Response:
    """Let a webhook take no deliveries, and lead back to the list."""
    return _done(request, lambda: parts.webhooks.change(path, WebhookChange(enabled=False), OPERATOR))


@router.post("/remove")
def remove(request: Request, parts: Parts, path: Path) -> Response:
    """Remove a webhook, and lead back to the list."""
    return _done(request, lambda: _remove(parts, path))


def _remove(parts: Parts, path: str) -> None:
    with parts.store.begin() as tx:
        tx.webhooks.remove(tx.webhooks.get(path), OPERATOR)


def _done(request: Request, wish: Callable[[], object]) -> Response:
    try:
        wish()
    except MaestroError as error:
        return _page(request, _Shown(problem=str(error)), status_of(error))
    return _back()


def _back() -> RedirectResponse:
    return RedirectResponse(PAGE, HTTPStatus.SEE_OTHER)


def _page(request: Request, shown: _Shown, status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    cursor = request.query_params.get("cursor") or None
    with parts_of(request).store.view() as tx:
        agents = [one for one in tx.agents.all() if one.status is not AgentStatus.ARCHIVED]
        webhooks = tx.webhooks.page(cursor, SHOWN + 1)
    return render(
        request,
        "webhooks.html",
        status,
        at=PAGE,
        title=TITLE,
        agents=agents,
        webhooks=webhooks[:SHOWN],
        following=webhooks[SHOWN - 1].path if len(webhooks) > SHOWN else None,
        first=cursor is None,
        shown=shown,
        address=f"{request.url.scheme}://{request.headers['host']}",
    )


_TYPED = set(Typed.model_fields) - {"secret"}
