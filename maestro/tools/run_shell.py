"""The tool ``run_shell``: a command of the shell, begun in the conversation's folder."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from maestro.child_process import ProgramCommand, ProgramEnd, ProgramLimits, ProgramResult, plain_environment, run
from maestro.tools.base import Arguments, ToolCaller, ToolFailure, tool_spec

SHELL = "/bin/sh"
OUTPUT_BYTES = 1_000_000
"""With more than this a command is ended."""
OUTPUT_CHARS = 10_000
"""Of each output; of a longer one the beginning and the end are told, where errors stand."""


class RunShell:
    """Runs a command; nothing of it is left when this returns, however it ends."""

    spec = tool_spec(
        "run_shell",
        "Run a command in a POSIX shell and return its exit code and output. It begins in your folder, which belongs "
        "to this conversation and keeps its files. Nothing can be typed in, and what still runs in the background at "
        "the end is ended.",
        {"command": {"type": "string", "minLength": 1, "maxLength": 10_000, "description": "the command"}},
        ["command"],
    )
    idempotent = False
    read_only = False

    def __init__(self, environment: Mapping[str, str], seconds: Callable[[], float]) -> None:
        """Of ``environment`` a command sees what any program needs, and no key; it may take so many seconds."""
        self._environment = plain_environment(environment)
        self._seconds = seconds

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:
        """Return exit code and output; a code other than 0 is a result like any other."""
        bounds = ProgramLimits(self._seconds(), OUTPUT_BYTES)
        command = ProgramCommand((SHELL, "-c", arguments["command"]), caller.folder, self._environment)
        try:
            ended = await run(await asyncio.to_thread(_at_home, command), bounds)
        except (OSError, ValueError) as error:
            raise ToolFailure(f"The command cannot be started: {error}.") from None
        if ended.outcome is ProgramEnd.TOO_LONG:
            raise ToolFailure(f"The command was ended after {bounds.seconds:g} seconds.\n{_output_text(ended)}")
        if ended.outcome is ProgramEnd.TOO_MUCH:
            raise ToolFailure(
                f"The command was ended: it wrote more than {OUTPUT_BYTES:,} bytes.\n{_output_text(ended)}"
            )
        return f"exit code {ended.code}\n{_output_text(ended)}"


def _at_home(command: ProgramCommand) -> ProgramCommand:
    """Make the folder, and let it be the command's home, so that nothing of the user's own is read by accident."""
    folder = Path(command.folder)
    folder.mkdir(parents=True, exist_ok=True)
    return replace(command, environment={**command.environment, "HOME": str(folder.resolve())})


def _output_text(ended: ProgramResult) -> str:
    outputs = (("output", ended.output), ("errors", ended.errors))
    parts = [f"--- {name}\n{_middle_out(text.decode(errors='replace'))}" for name, text in outputs if text]
    return "\n".join(parts) or "(it wrote nothing)"


def _middle_out(text: str) -> str:
    if len(text) <= OUTPUT_CHARS:
        return text
    half = OUTPUT_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters were left out]\n{text[-half:]}"
