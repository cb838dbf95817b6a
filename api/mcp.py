"""The MCP server for external agents at ``/mcp``, which authenticate by their tokens."""

import asyncio
import json
from importlib import import_module
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import InvalidRequest
from api.guards import BearerRoute
from maestro.tools.chat import OutsideTools

router = APIRouter(route_class=BearerRoute, tags=["mcp"])


class LazyServer:
    """The MCP server, built at the first request, because importing the MCP SDK takes half a second."""

    def __init__(self, tools: OutsideTools, version: str) -> None:
        self._tools = tools
        self._version = version
        self._server: ASGIApp | None = None

    async def create_app(self) -> ASGIApp:
        """Return the MCP server as an ASGI application."""
        if self._server is None:
            module = await asyncio.to_thread(import_module, "api.mcp_server")
            self._server = module.AgentToolServer(self._tools, self._version)
        return self._server


@router.post("/mcp", response_class=Response)
async def speak_mcp(request: Request) -> Any:
    """Answer one JSON-RPC message of an MCP client, over streamable HTTP without sessions and streams.

    The server keeps no state of a client between requests, so any process may answer any request.
    """
    body = await request.body()
    # Maestro itself refuses other bodies, because the SDK's response would reveal details of the validation.
    if not (request.headers.get("content-type", "").startswith("application/json") and _is_json_rpc_message(body)):
        raise InvalidRequest("Send one JSON-RPC 2.0 message, with the header Content-Type: application/json.")
    server: LazyServer = request.app.state.mcp
    return _ForwardedResponse(await server.create_app(), body)


def _is_json_rpc_message(body: bytes) -> bool:
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


class _ForwardedResponse(Response):
    """A response that another ASGI application makes from a request body that was already read."""

    def __init__(self, app: ASGIApp, body: bytes) -> None:
        super().__init__()
        self._app = app
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the other application with the request body."""
        first: list[Message] = [{"type": "http.request", "body": self._body, "more_body": False}]

        async def receive_again() -> Message:
            return first.pop() if first else await receive()

        await self._app(scope, receive_again, send)
