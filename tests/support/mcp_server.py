"""An MCP server written with the official SDK, for tests: over standard input and output, or ``--port N``.

What its tools do outside goes as lines into the file that the variable ``NOTES`` names.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations

PICTURE = b"\x89PNG\r\n\x1a\n and so on"

server = MCPServer("test", instructions="A server for tests.")


def noted(line: str) -> None:
    """Leave a trace outside."""
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{line}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two whole numbers.

    They may be negative.
    """
    return a + b


@server.tool()
def note(text: str) -> str:
    """Write a line down."""
    noted(text)
    return f"noted {text}"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def setting(name: str) -> str:
    """Return a variable of the environment."""
    return os.environ.get(name, "(not set)")


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the disk is full")


@server.tool()
def die() -> str:
    """End the server in the middle of a call."""
    noted("died")
    os._exit(1)


@server.tool()
async def slow() -> None:
    """Never answer."""
    noted("begun")
    try:
        await anyio.sleep_forever()
    finally:
        noted("cancelled")


@server.tool()
def pid() -> int:
    """Return the number of the server's process."""
    return os.getpid()


@server.tool()
def spawn() -> int:
    """Start a program that stays, and return its number."""
    return subprocess.Popen(["sleep", "300"]).pid


@server.tool(structured_output=False)
def picture() -> list[Any]:
    """Return a picture, what only claims to be one, and a word."""
    return [Image(data=PICTURE, format="png"), Image(data=b"png", format="png"), "a word"]


@server.tool(name="odd.name")
def odd() -> str:
    """Have a name that providers refuse."""
    return "odd"


@server.tool(name="odd_name")
def odd_too() -> str:
    """Have the name that the other one gets."""
    return "odd too"


@server.tool(name="long" * 20)
def long() -> str:
    """Have a long name."""
    return "long"


@server.tool()
async def grow(context: Context[Any, Any]) -> str:
    """Get another tool, and say so."""
    server.add_tool(lambda: "grown", name="grown", description="New.")
    await context.notify_tools_changed()
    return "done"


if __name__ == "__main__":
    print("a word with sk-secret-of-the-server in it", file=sys.stderr, flush=True)
    if "--port" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[sys.argv.index("--port") + 1]))
    else:
        server.run("stdio")
