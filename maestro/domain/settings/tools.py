"""The settings of tools, questions, memory and skills."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from maestro.domain.fields import Name, OwnerId, ToolName, Word
from maestro.domain.settings.section import Folder, HttpUrl, Seconds, Section, live, setting, unique

DEFAULT_TOOLS = ("web_search", "http_fetch", "calculate", "get_time", "memory_search", "ask_question")


class McpServerSettings(Section):
    """One MCP server; agents may call its tools as `<name>_<tool>`."""

    name: Word = Field(description="a name of your choice, unique")
    command: str = setting("", "the program to start and talk to over its standard input and output")
    args: tuple[str, ...] = setting((), "arguments of the program")
    env: dict[str, SecretStr] = setting({}, "environment variables of the program, besides PATH and HOME")
    url: HttpUrl = setting("", "the address of a server that speaks streamable HTTP, instead of `command`")
    headers: dict[str, SecretStr] = setting({}, "headers of every request to `url`")
    idempotent: tuple[ToolName, ...] = setting(
        (), "tools of the server that may be called again if the effect of a call is unknown"
    )

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("set either command or url of the MCP server")
        return self


class ToolSettings(Section):
    """The tools of agents: defaults, approval, limits and MCP servers."""

    default: tuple[ToolName, ...] = setting(DEFAULT_TOOLS, "the tools of agents that list none")
    approval: tuple[ToolName, ...] = live((), "tools that require approval before each call")
    approvers: tuple[OwnerId, ...] = live((), "users besides owners that may approve, as `platform:userId`")
    timeout_seconds: Seconds = live(60, "seconds one tool call may take")
    max_result_chars: int = live(24_000, "characters of the longest tool result", ge=100, le=1_000_000)
    search_url: HttpUrl = setting(
        "https://api.duckduckgo.com/", "the address that `web_search` calls; it must answer as DuckDuckGo does"
    )
    files: bool = setting(
        False, "whether `read_file`, `write_file`, `list_files` and `send_file` work, in the conversation's folder"
    )
    shell: bool = setting(False, "whether `run_shell` works, started in the conversation's folder")
    mcp: Annotated[
        tuple[McpServerSettings, ...],
        unique(lambda server: server.name, "two MCP servers have the name {}; rename one"),
    ] = setting((), "MCP servers")
    private_hosts: tuple[Name, ...] = setting(
        (), "hosts on private addresses that `web_search` and `http_fetch` may reach nevertheless"
    )


class QuestionSettings(Section):
    """Questions of agents to users."""

    expiry_hours: float = live(168, "hours a question waits for its answer", gt=0, le=8760)
    patience_seconds: float = live(
        25, "seconds that a call over MCP waits for the answer before the agent has to ask again", ge=0, le=300
    )

    @property
    def expiry(self) -> timedelta:
        """The time for which a question waits for its answer."""
        return timedelta(hours=self.expiry_hours)


class MemorySettings(Section):
    """The memory of agents."""

    scope: Literal["agent", "conversation"] = live(
        "agent",
        "where an agent recalls its facts: everywhere, or only in the conversation in which it learned them",
    )


class SkillSettings(Section):
    """Skills: instructions that are added to a prompt when a message matches them."""

    folder: Folder = setting(Path("skills"), "the folder with your own skills, relative to the working directory")
    look_seconds: Seconds = setting(2, "seconds between two checks of the skill files for changes")
