"""The pages of the chats: that with the web connector, and the agent chat #maestro."""

import zlib
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import submit
from api.dashboard.pages import lead_back, render
from api.guards import PasswordRoute
from api.parts import AgentChat
from api.routes.dependencies import Parts, chat_of
from maestro.domain.agent_chat import CHANNEL, HUMAN
from maestro.domain.errors import MaestroError

PAGE = "/maestro"
TITLE = f"{CHANNEL} – Maestro"
SHOWN = 200
"""Posts that the page shows at first; earlier ones are shown when they are asked for."""
HUES = 6

pane = APIRouter(route_class=PasswordRoute, include_in_schema=False)
posting = APIRouter(route_class=PasswordRoute, include_in_schema=False)
"""Registered only where there is a chat."""


@pane.get(PAGE)
def show(request: Request, parts: Parts) -> HTMLResponse:
    """Show the newest posts and a form for a new one; a notice if the configuration has no chat."""
    if parts.chat is None:
        return render(request, "agent-chat-off.html", title=TITLE)
    return _page(request, parts.chat)


@posting.post(PAGE)
def post(request: Request, parts: Parts, text: Annotated[str, Form()] = "") -> Response:
    """Post the form's text, for browsers without scripts; a rejected text is shown again."""
    chat = chat_of(parts)
    return submit(
        lambda: chat.service.post(HUMAN, text),
        lambda _: lead_back(f"{PAGE}#end"),
        lambda error: _page(request, chat, text, error),
    )


def hue(author: str) -> int:
    """Return the number of an author's colour, which is always the same."""
    return zlib.crc32(author.encode()) % HUES


def clock_time(moment: str) -> str:
    """Return the time of a post, for browsers without scripts."""
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC"


def _page(request: Request, chat: AgentChat, text: str = "", problem: MaestroError | None = None) -> HTMLResponse:
    rules = chat.rules()
    return render(
        request,
        "agent-chat.html",
        title=TITLE,
        channel=CHANNEL,
        posts=chat.service.timeline(SHOWN),
        rules=rules,
        shown=SHOWN,
        hue=hue,
        clock_time=clock_time,
        text=text,
        problem=problem,
    )
