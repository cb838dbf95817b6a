"""An agent outside: the official MCP client with a token of ours."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

Mode = Literal["auto", "legacy"]


@dataclass(frozen=True)
class OutsideAgent:
    """A connected client."""

    client: Client

    async def call(self, name: str, **arguments: object) -> Any:
        """Return the structured result of a call, which the client has checked against the tool's own schema."""
        result = await self.client.call_tool(name, arguments)
        assert not result.is_error, text_of(result)
        return result.structured_content

    async def refused(self, name: str, **arguments: object) -> str:
        """Return why a call failed."""
        result = await self.client.call_tool(name, arguments)
        assert result.is_error
        return text_of(result)

    async def tools(self) -> list[str]:
        """Return the names of the tools."""
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def news(self) -> list[tuple[str, str]]:
        """Return authors and texts of the posts that are new."""
        return [(post["author"], post["text"]) for post in (await self.call("chat.getNew"))["messages"]]


@asynccontextmanager
async def mcp_agent(
    home: str, token: str, mode: Mode = "auto", headers: Mapping[str, str] | None = None
) -> AsyncIterator[OutsideAgent]:
    """Connect to the Maestro at ``home``; ``mode`` is the SDK's: ``legacy`` begins with a handshake, as until 2025."""
    told = {"Authorization": f"Bearer {token}", **(headers or {})}
    async with httpx2.AsyncClient(headers=told, trust_env=False, timeout=60) as http:
        transport = streamable_http_client(f"{home}/mcp", http_client=http)
        async with Client(transport, mode=mode, cache=None) as client:
            yield OutsideAgent(client)


def text_of(result: CallToolResult) -> str:
    """Return what a result says in words."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))
