"""The door for agents outside: an MCP server at ``/mcp``, which knows them by their tokens."""

import asyncio
import json
from importlib import import_module
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import InvalidRequest
from api.guards import BearerRoute
from maestro.tools.outside import OutsideTools

router = APIRouter(route_class=BearerRoute, tags=["mcp"])


class LateServer:
    """The MCP server, made with the first request: its SDK takes half a second to import, and many need none of it."""

    def __init__(self, tools: OutsideTools, version: str) -> None:
        self._tools = tools
        self._version = version
        self._made: ASGIApp | None = None

    async def app(self) -> ASGIApp:
        """Return the server as an application."""
        if self._made is None:
            self._made = await asyncio.to_thread(self._make)
        return self._made

    def _make(self) -> ASGIApp:
        made: ASGIApp = import_module("api.mcp_server").AgentToolServer(self._tools, self._version)
        return made


@router.post("/mcp", response_class=Response)
async def speak_mcp(request: Request) -> Any:
    """Answer one JSON-RPC message of an MCP client, over streamable HTTP; there are no sessions and no streams.

    A client keeps nothing here between two requests, so any process may answer each of them.
    """
    body = await request.body()
    # Any other body is refused here, because the SDK would reveal its internal validation in the answer.
    if not (request.headers.get("content-type", "").startswith("application/json") and _is_message(body)):
        raise InvalidRequest("Send one JSON-RPC 2.0 message, with the header Content-Type: application/json.")
    late: LateServer = request.app.state.mcp
    return _Passed(await late.app(), body)


def _is_message(body: bytes) -> bool:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(message, dict)
        and message.get("jsonrpc") == "2.0"
        and isinstance(message.get("method"), str)
        and isinstance(message.get("params", {}), dict)
    )


class _Passed(Response):
    """A response made by another ASGI application, which gets the body that was read already."""

    def __init__(self, app: ASGIApp, body: bytes) -> None:
        super().__init__()
        self._app = app
        self._read = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the application answer."""
        first: list[Message] = [{"type": "http.request", "body": self._read, "more_body": False}]

        async def again() -> Message:
            return first.pop() if first else await receive()

        await self._app(scope, again, send)
