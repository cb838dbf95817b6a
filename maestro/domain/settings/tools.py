"""The settings of what agents can do and know: tools, questions, memory and skills."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from maestro.domain.settings.section import LIVE, Folder, HttpUrl, Seconds, Section, first_repeated
from maestro.domain.words import Name, OwnerId, ToolName, Word

DEFAULT_TOOLS = ("web_search", "http_fetch", "calculate", "get_time", "memory_search", "ask_question")


class McpServerSettings(Section):
    """One MCP server whose tools agents may call, as `<name>_<tool>`."""

    name: Word = Field(description="a name of your choice, unique")
    command: str = Field(default="", description="the program to start and talk to over its standard input and output")
    args: tuple[str, ...] = Field(default=(), description="its arguments")
    env: dict[str, SecretStr] = Field(default={}, description="its environment, besides PATH and HOME")
    url: HttpUrl = Field(default="", description="or the address of a server that speaks streamable HTTP")
    headers: dict[str, SecretStr] = Field(default={}, description="headers of every request to `url`")
    idempotent: tuple[ToolName, ...] = Field(
        default=(), description="its tools that may be called again when nobody knows whether a call took effect"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("set either command or url")
        return self


def unique_servers(servers: tuple[McpServerSettings, ...]) -> tuple[McpServerSettings, ...]:
    """Two servers may not share a name."""
    twice = first_repeated(server.name for server in servers)
    if twice is not None:
        raise ValueError(f"two MCP servers have the name {twice}; rename one")
    return servers


class ToolSettings(Section):
    """What agents can do besides talking."""

    default: tuple[ToolName, ...] = Field(default=DEFAULT_TOOLS, description="the tools of agents that list none")
    approval: tuple[ToolName, ...] = Field(
        default=(), description="tools that wait for a person's yes before each call", json_schema_extra=LIVE
    )
    approvers: tuple[OwnerId, ...] = Field(
        default=(), description="who may say yes besides owners, as `platform:userId`", json_schema_extra=LIVE
    )
    timeout_seconds: Seconds = Field(default=60, description="seconds one call may take", json_schema_extra=LIVE)
    max_result_chars: int = Field(
        default=24_000, ge=100, le=1_000_000, description="characters of the longest result", json_schema_extra=LIVE
    )
    search_url: HttpUrl = Field(
        default="https://api.duckduckgo.com/", description="where `web_search` asks; it must answer as DuckDuckGo does"
    )
    files: bool = Field(
        default=False,
        description="whether `read_file`, `write_file`, `list_files` and `send_file` work, in the conversation's "
        "folder",
    )
    shell: bool = Field(default=False, description="whether `run_shell` works, started in the conversation's folder")
    mcp: Annotated[tuple[McpServerSettings, ...], AfterValidator(unique_servers)] = Field(
        default=(), description="MCP servers"
    )
    private_hosts: tuple[Name, ...] = Field(
        default=(), description="hosts on private addresses that `web_search` and `http_fetch` may reach all the same"
    )


class QuestionSettings(Section):
    """Questions of agents to people."""

    expiry_hours: float = Field(
        default=168, gt=0, le=8760, description="hours a question waits for its answer", json_schema_extra=LIVE
    )
    patience_seconds: float = Field(
        default=25,
        ge=0,
        le=300,
        description="seconds that a call over MCP waits for the answer before the agent has to ask again",
        json_schema_extra=LIVE,
    )

    @property
    def expiry(self) -> timedelta:
        """How long a question waits for its answer."""
        return timedelta(hours=self.expiry_hours)


class MemorySettings(Section):
    """What agents remember."""

    scope: Literal["agent", "conversation"] = Field(
        default="agent",
        description="where an agent remembers what it learned: everywhere, or only in the channel it learned it in",
        json_schema_extra=LIVE,
    )


class SkillSettings(Section):
    """Instructions that are given to a model when a message needs them."""

    folder: Folder = Field(
        default=Path("skills"), description="the folder with your own skills, from the folder Maestro is started in"
    )
    look_seconds: Seconds = Field(default=2, description="how often the files of skills are looked at for changes")
