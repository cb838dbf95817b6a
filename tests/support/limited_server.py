"""A port of ours in a process that may open few files: ``python -m tests.support.limited_server FILES``."""

import asyncio
import resource
import sys

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from maestro.serving import (
    ConnectionLimits,
    ListenAddress,
    Server,
    listen_on_address,
    raise_descriptor_limit,
    serve_until_cancelled,
    uvicorn_config,
)

REQUEST_SECONDS = 1.0


async def _hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"hello {len(await request.body())}")


async def _echo(socket: WebSocket) -> None:
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(text)


async def _serve() -> None:
    sockets = listen_on_address(ListenAddress("127.0.0.1", 0, "test", "--port"))
    app = Starlette(routes=[Route("/", _hello, methods=["GET", "POST"]), WebSocketRoute("/socket", _echo)])

    async def announce() -> None:
        print(sockets[0].getsockname()[1], resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)

    options = uvicorn_config(app, ConnectionLimits(request_seconds=REQUEST_SECONDS))
    await serve_until_cancelled(Server(options, announce), sockets)


if __name__ == "__main__":
    most = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, most))
    raise_descriptor_limit()
    asyncio.run(_serve())
