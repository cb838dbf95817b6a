"""Tools of MCP servers: each server has one session, opened in the background and reopened after every failure."""

import asyncio
import base64
import math
import re
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import anyio
import httpx2
import mcp_types as types
import structlog
from jsonschema import SchemaError
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from maestro.domain.llm.prompts import ToolSpec
from maestro.domain.media import MAX_IMAGES
from maestro.domain.release import release
from maestro.domain.settings.jobs import McpServerSettings
from maestro.supervision import finish_despite_cancellation
from maestro.tools.base import (
    Arguments,
    Tool,
    ToolCaller,
    ToolFailure,
    ToolImage,
    ToolOutput,
    canonical_json,
    detect_picture,
)
from maestro.tools.mcp_process import Program, run_program
from maestro.tools.registry import check_parameters, local_name

CONNECT_SECONDS = 30.0
"""Seconds from a server's start to its list of tools, at most; some servers are downloaded first."""
RECONNECT_SECONDS = (1.0, 60.0)
"""The first and the longest wait before a session is opened again."""
READ_SECONDS = 300.0


_log = structlog.get_logger(__name__)


def mask_secrets(server: McpServerSettings, text: str) -> str:
    """Return a text with each secret of a server masked; secrets under 6 characters stay, to keep logs readable."""
    for secret in (*server.env.values(), *server.headers.values()):
        if len(value := secret.get_secret_value()) >= 6:
            text = text.replace(value, "***")
    return text


class McpServers:
    """This process's sessions with MCP servers."""

    def __init__(self, servers: Sequence[McpServerSettings], environment: Mapping[str, str]) -> None:
        """``environment`` holds the variables, without secrets, that every server program gets besides its own."""
        self._sessions = [_McpSession(server, environment) for server in servers]
        self._until: float | None = None

    def tools(self) -> Sequence[Tool]:
        """Return the tools of all connected servers; of two tools with the same name, that of the first server."""
        tools: dict[str, Tool] = {}
        for session in self._sessions:
            for tool in session.tools:
                tools.setdefault(tool.spec.name, tool)
        return list(tools.values())

    async def settled(self) -> None:
        """Return when every server was tried once, at most 5 seconds after the first call of this method."""
        now = asyncio.get_running_loop().time()
        self._until = self._until or now + 5
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._until):
                for session in self._sessions:
                    await session.tried.wait()

    async def serve(self) -> None:
        """Keep the sessions open until cancelled; then close them and end the server programs."""
        tasks = [asyncio.create_task(session.keep_open()) for session in self._sessions]
        try:
            await asyncio.wait(tasks)
        finally:
            for session in self._sessions:
                session.end_session()
            await finish_despite_cancellation(_wait_for_all(tasks))


async def _wait_for_all(tasks: Sequence["asyncio.Task[None]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


class _McpSession:
    """The session with one MCP server.

    One task opens the session, lists the server's tools and closes the session; other tasks call the tools. After a
    failed call the first task lists the tools again, and reopens the session if that fails as well.
    """

    def __init__(self, server: McpServerSettings, environment: Mapping[str, str]) -> None:
        self.tools: Sequence[Tool] = ()
        self.tried = asyncio.Event()
        self._server = server
        self._environment = environment
        self._clean = partial(mask_secrets, server)
        self._news = asyncio.Event()
        self._client: Client | None = None
        self._open: anyio.CancelScope | None = None
        self._closed = False

    def end_session(self) -> None:
        """End ``keep_open``, or prevent its start."""
        self._closed = True
        if self._open is not None:
            self._open.cancel()

    async def keep_open(self) -> None:
        """Keep the session open; reopen it after a failure, with growing pauses while it cannot be opened."""
        with anyio.CancelScope() as self._open:
            wait = RECONNECT_SECONDS[0]
            while not self._closed:
                worked = await self._run_session()
                self.tried.set()
                wait = RECONNECT_SECONDS[0] if worked else min(wait * 2, RECONNECT_SECONDS[1])
                await asyncio.sleep(wait)

    async def call_tool(self, name: str, arguments: Arguments) -> str | ToolOutput:
        """Call a tool by the server's own name for it; raises ``ToolFailure``."""
        client, server = self._client, self._server.name
        if client is None:
            raise ToolFailure(f"The server {server} of this tool is not connected. Do without the tool, or try later.")
        try:
            result = await client.call_tool(name, dict(arguments))
        except (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self._news.set()
            if isinstance(error, MCPError) and error.code != types.CONNECTION_CLOSED:
                raise ToolFailure(f"The server {server} refused the call: {self._clean(error.message)}") from None
            raise ToolFailure(
                f"The server {server} ended the connection during the call; whether the call took effect is unknown."
            ) from None
        except (RuntimeError, ValueError) as error:
            raise ToolFailure(f"The server {server} sent a wrong answer: {self._clean(str(error))[:500]}") from None
        if result.is_error:
            raise ToolFailure(_result_text(result) or f"The server {server} gave no reason why the call failed.")
        text, pictures = _result_text(result) or "(the tool returned nothing)", tuple(_result_pictures(result))
        return ToolOutput(text, pictures) if pictures else text

    async def _run_session(self) -> bool:
        """Keep one session open until it breaks; return whether the server ever returned a list of tools."""
        reason: object = f"the server gave no list of tools within {CONNECT_SECONDS:g} seconds"
        worked = False
        try:
            with anyio.CancelScope() as scope:
                async with AsyncExitStack() as stack:
                    scope.deadline = anyio.current_time() + CONNECT_SECONDS
                    info = types.Implementation(name="maestro", version=release())
                    transport = await self._transport(stack)
                    client = await stack.enter_async_context(
                        Client(transport, client_info=info, message_handler=self._notice_change, cache=None)
                    )
                    tasks = await stack.enter_async_context(anyio.create_task_group())
                    tasks.start_soon(self._watch_tools, client)
                    while True:
                        self._news.clear()
                        self.tools = self._convert_tools(await _list_tools(client))
                        self._client, worked = client, True
                        self.tried.set()
                        scope.deadline = math.inf
                        await self._news.wait()
                        scope.deadline = anyio.current_time() + CONNECT_SECONDS
        # An MCP server is foreign code: its errors must not stop other tools or an answer.
        except Exception as error:  # noqa: BLE001 - see above
            reason = self._clean(_first_error(error))
        finally:
            self._client, self.tools = None, ()
        _log.warning("an MCP server is not connected and will be tried again", server=self._server.name, reason=reason)
        return worked

    async def _transport(self, stack: AsyncExitStack) -> Transport:
        server = self._server
        if server.command:
            own = {name: value.get_secret_value() for name, value in server.env.items()}
            return run_program(
                Program(
                    server.name,
                    (server.command, *server.args),
                    {**self._environment, **own},
                    self._clean,
                    self._news.set,
                )
            )
        http = httpx2.AsyncClient(
            headers={name: value.get_secret_value() for name, value in server.headers.items()},
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS),
            trust_env=False,
        )
        return streamable_http_client(server.url, http_client=await stack.enter_async_context(http))

    async def _watch_tools(self, client: Client) -> None:
        """Receive notifications of changed tools, which servers of the newer protocol send to subscribers only."""
        with suppress(ListenNotSupportedError, SubscriptionLost, MCPError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._news.set()
                self._news.set()

    async def _notice_change(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._news.set()

    def _convert_tools(self, listed: Sequence[types.Tool]) -> Sequence[Tool]:
        """Return the server's tools under local names; tools without a valid schema or name are left out."""
        tools: dict[str, Tool] = {}
        for tool in sorted(listed, key=lambda tool: tool.name):
            try:
                converted = self._convert_tool(tool, taken=tools)
                tools[converted.spec.name] = converted
            except (SchemaError, ValueError) as error:
                reason = error.message if isinstance(error, SchemaError) else str(error)
                _log.error("a tool was left out", server=self._server.name, tool=tool.name, reason=reason[:300])
        return list(tools.values())

    def _convert_tool(self, tool: types.Tool, taken: Container[str]) -> "McpTool":
        name = local_name(self._server.name, tool.name)
        if name in taken:
            raise ValueError(f"the server has another tool that would be called {name} here")
        check_parameters(tool.input_schema)
        parameters = {key: value for key, value in tool.input_schema.items() if key != "$schema"}
        description = re.sub(r"\s*\n\s*\n\s*", "\n", (tool.description or tool.title or tool.name).strip())
        hints = tool.annotations or types.ToolAnnotations()
        return McpTool(
            spec=ToolSpec(
                name=name,
                description=description[:4000],
                parameters=canonical_json({"type": "object", "properties": {}, **parameters}),
            ),
            read_only=bool(hints.read_only_hint),
            idempotent=bool(hints.read_only_hint or hints.idempotent_hint) or tool.name in self._server.idempotent,
            call=partial(self.call_tool, tool.name),
        )


@dataclass
class McpTool:
    """One tool of a server; the server declares whether it only reads and whether a call may be repeated."""

    spec: ToolSpec
    idempotent: bool
    read_only: bool
    call: Callable[[Arguments], Awaitable[str | ToolOutput]] = field(repr=False)

    async def run(
        self,
        arguments: Arguments,
        caller: ToolCaller,  # noqa: ARG002 - required by the interface
    ) -> str | ToolOutput:
        """Call the tool on the server; a cancellation is passed on to the server."""
        return await self.call(arguments)


async def _list_tools(client: Client) -> Sequence[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(100):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _result_text(result: types.CallToolResult) -> str:
    """Return the text of a result; structured content only if there is no text, because it repeats the text."""
    text = "\n".join(filter(None, map(_block_text, result.content)))
    return text if text or result.structured_content is None else canonical_json(result.structured_content)


def _block_text(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() if _block_picture(block) is not None:
            return f"[{block.type}, {block.mime_type}]"
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type}, {block.mime_type}: cannot be shown]"
        case types.ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return text
        case _:
            return f"[{block.type}: cannot be shown]"


def _result_pictures(result: types.CallToolResult) -> Iterator[ToolImage]:
    images = (_block_picture(block) for block in result.content if isinstance(block, types.ImageContent))
    return islice((image for image in images if image is not None), MAX_IMAGES)


def _block_picture(block: types.ImageContent) -> ToolImage | None:
    """Return a picture from a server, None for a picture that no model accepts."""
    try:
        return detect_picture(base64.b64decode(block.data, validate=True))
    except ValueError:
        return None


def _first_error(error: BaseException) -> str:
    """Return the text of the first error inside the exception groups of task groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]
