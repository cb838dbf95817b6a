"""The list of conversations, with filters that live in the address."""

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.pages import render
from api.errors import status_of
from api.guards import PasswordRoute
from api.live import unchanged
from api.routes.surroundings import Parts
from maestro.domain.conversations.conversation import ConversationStatus
from maestro.domain.conversations.views import ConversationPage
from maestro.domain.errors import InvalidEdit
from maestro.domain.reading import read
from maestro.operations.conversations import ConversationQuery
from maestro.store.transaction import Transaction

PAGE = "/conversations"
TITLE = "Conversations – Maestro"
FILTERS = ("q", "platform", "agent", "status", "user", "channel")
NOTHING = ConversationPage(items=(), next=None)
DONE = {"deleted": "The conversation is deleted, with everything that was said in it."}
"""What was done, by the word that stands in the address: no text of an address is shown."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


@router.get("")
def show(request: Request, parts: Parts, done: str = "") -> Response:
    """List conversations, the one that was spoken in last first; a filter that cannot be is said above the form."""
    same = unchanged(request)
    if same is not None:
        return same
    typed = {name: request.query_params.get(name, "").strip() for name in FILTERS}
    cursor = request.query_params.get("cursor", "")
    with parts.store.view() as tx:
        values = {**_choices(tx), "typed": typed, "said": DONE.get(done, ""), "first": not cursor}
    try:
        shown = parts.conversations.list(_wanted(typed, cursor))
    except InvalidEdit as error:
        return _page(request, {**values, "shown": NOTHING, "problem": str(error)}, status_of(error))
    return _page(request, {**values, "shown": shown, "problem": ""})


def _wanted(typed: Mapping[str, str], cursor: str) -> ConversationQuery:
    """Return what the form asks for; a field that is left empty asks for nothing."""
    return read(ConversationQuery, {name: text for name, text in {**typed, "cursor": cursor}.items() if text})


def _choices(tx: Transaction) -> dict[str, object]:
    return {
        "platforms": tx.conversation_lists.platforms(),
        "agents": tx.agents.slugs(),
        "states": [state.value for state in ConversationStatus],
    }


def _page(request: Request, values: Mapping[str, object], status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    return render(request, "conversations.html", status, title=TITLE, **values)
