"""The chat page on a port of its own, as the dashboard serves it: same headers, tickets, one template."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from connectors.base import Identity, IdentityRole
from maestro.serving import Server, serve_until_cancelled, uvicorn_config
from tests.support.memory_context import MemoryContext

DASHBOARD = Path(__file__).parents[2] / "api" / "dashboard"
CSRF = "csrf-of-the-tests"


@dataclass
class ChatPage:
    """Serves the page for a web connector at ``web_port``; its tickets are put where that connector looks."""

    context: MemoryContext
    web_port: int
    port: int
    signed_in: bool = True
    demo: bool = True

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://localhost:{self.port}/"

    def routes(self) -> list[Route | Mount]:
        """Return page, tickets and static files."""
        return [
            Route("/", self.page),
            Route("/api/web/tickets", self.ticket, methods=["POST"]),
            Mount("/static", StaticFiles(directory=DASHBOARD / "static")),
        ]

    async def page(self, _request: Request) -> Response:
        """Render the template under the strictest policy it is meant for."""
        environment = Environment(
            loader=FileSystemLoader(DASHBOARD / "templates"), autoescape=select_autoescape(), undefined=StrictUndefined
        )
        environment.globals["static"] = lambda name: f"/static/{name}"
        html = environment.get_template("chat.html").render(
            title="Maestro",
            web_url=f"ws://localhost:{self.web_port}" if self.web_port else "",
            csrf_token=CSRF,
            password_set=False,
            demo=self.demo,
            version="0.1.0",
            logged_in=True,
            may_change=True,
        )
        web = f"ws://localhost:{self.web_port} http://localhost:{self.web_port}"
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
            f"connect-src 'self' {web}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    async def ticket(self, request: Request) -> Response:
        """Hand out a ticket for the operator."""
        if not self.signed_in or request.headers.get("X-CSRF-Token") != CSRF:
            return JSONResponse({"error": "Forbidden", "message": "no"}, status_code=403)
        ticket = secrets.token_urlsafe()
        self.context.tickets[ticket] = Identity("operator", "Ada", IdentityRole.OWNER)
        return JSONResponse({"ticket": ticket})


@asynccontextmanager
async def chat_page(context: MemoryContext, web_port: int, listening: socket.socket) -> AsyncIterator[ChatPage]:
    """Serve the page on an already bound socket for the length of a block."""
    page = ChatPage(context, web_port, listening.getsockname()[1])
    started = asyncio.Event()

    async def serving() -> None:
        started.set()

    server = Server(uvicorn_config(Starlette(routes=page.routes())), serving)
    task = asyncio.create_task(serve_until_cancelled(server, [listening]))
    await started.wait()
    try:
        yield page
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
