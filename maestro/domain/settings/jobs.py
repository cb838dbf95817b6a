"""The settings of jobs, schedules, webhooks, tools, memory and skills, and of the `#maestro` chat and its scanner."""

import re
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from maestro.domain.redaction import AllowList, ScanRules, allow_list_entry_problem
from maestro.domain.settings.section import ChannelReference, Folder, HttpUrl, Seconds, Section, live, setting, unique
from maestro.domain.values import Name, OptionalIdentifier, OptionalSlug, OwnerId, ToolName, Word

DEFAULT_TOOLS = ("web_search", "http_fetch", "calculate", "get_time", "memory_search", "ask_question")


class RoutingSettings(Section):
    """How the answering agent is chosen, and rate limits of users and bots."""

    conductor_channels: tuple[ChannelReference, ...] = live(
        (), "channels where the conductor answers, as `platform:channel`"
    )
    fallback_agent: OptionalSlug = live(
        "", "the slug of the agent that answers if no routing rule names one; empty: none"
    )
    busy: Literal["queue", "collect", "interrupt"] = live(
        "queue",
        "what happens to a message while another message of its channel is being answered: it waits (`queue`), is "
        "answered together with all waiting messages (`collect`), or interrupts the answer (`interrupt`)",
    )
    messages_per_minute: int = live(
        30, "messages of one user answered a minute, the rest is dropped; owners have no limit", ge=1, le=100_000
    )
    bot_messages_per_minute: int = live(
        20, "messages of one bot in one channel that are answered a minute; the rest is dropped", ge=1, le=10_000
    )


class PairingSettings(Section):
    """Pairing: how an unknown user gets access to direct messages."""

    expiry_minutes: float = live(60, "minutes a pairing code is valid", gt=0, le=10_080)


class ConductorSettings(Section):
    """The rights of conductor agents, which change agents, clients and schedules."""

    allow_users: tuple[OwnerId, ...] = live(
        (), "users besides owners that may have a conductor change agents, schedules and clients, as `platform:userId`"
    )
    approve_after_reading: bool = live(
        True,
        "whether a user must approve the changes of a conductor after text from outside was read for the "
        "answer (by `http_fetch`, `web_search`, `run_shell`, a tool over MCP or of another package)",
    )


class ScheduleSettings(Section):
    """Schedules: heartbeats and crons."""

    shortest_interval_seconds: int = live(
        30, "the shortest interval, in seconds, of a new schedule; existing schedules stay as they are", ge=1, le=86_400
    )
    follow_seconds: Seconds = live(1, "seconds between two checks for schedule changes to send to Temporal")
    compare_minutes: float = live(60, "minutes between two comparisons of all schedules with Temporal", gt=0, le=1440)
    pause_after_failures: int = live(10, "failed runs in a row after which Maestro pauses a schedule", ge=1, le=1000)

    @property
    def shortest(self) -> timedelta:
        """The shortest interval accepted for a new schedule."""
        return timedelta(seconds=self.shortest_interval_seconds)


class WebhookSettings(Section):
    """Webhooks: requests of other programs to `/hooks/` on the port of the dashboard."""

    max_body_bytes: int = live(1024**2, "bytes of a request body; larger bodies are refused", ge=1024, le=25 * 1024**2)
    keep_days: float = live(30, "days for which a repeated webhook request is recognised", ge=1, le=3650)


class JobSettings(Section):
    """Limits, retries and polling of jobs."""

    max_attempts: int = live(3, "the most attempts at a model call that fails at the provider", ge=1, le=100)
    max_tool_rounds: int = live(5, "rounds of tool calls after which the model has to answer", ge=0, le=50)
    backoff_base_minutes: float = live(
        2, "minutes before the second attempt at a model call; each further wait is twice as long", gt=0, le=1440
    )
    crash_limit: int = live(10, "process crashes in one step after which its job is quarantined (fails)", ge=1, le=1000)
    max_pending: int = live(10_000, "pending messages at which new messages are refused", ge=1, le=10_000_000)
    background_concurrency: int = live(
        50, "jobs of heartbeats and crons, and jobs that these start, that run at once; more jobs wait", ge=1, le=10_000
    )
    fairness: bool = live(
        True,
        "whether a fair queue serves clients, or else channels, by their weights; if not, jobs start in order of "
        "arrival",
    )
    stop_poll_seconds: Seconds = live(0.5, "seconds between two checks whether a job was stopped")
    reconcile_seconds: Seconds = live(60, "seconds between two comparisons of open jobs with Temporal")
    dispatch_seconds: Seconds = live(0.2, "seconds between two checks for messages that another process received")
    drain_seconds: float = setting(
        20, "seconds that running work gets to finish when Maestro shuts down", ge=0, le=3600
    )


class McpServerSettings(Section):
    """One MCP server; agents may call its tools as `<name>_<tool>`."""

    name: Word = Field(description="a name of your choice, unique")
    command: str = setting("", "the program to start, which speaks MCP over its standard input and output")
    args: tuple[str, ...] = setting((), "arguments of the program")
    env: dict[str, SecretStr] = setting({}, "environment variables of the program, besides PATH and HOME")
    url: HttpUrl = setting("", "the address of a server that speaks streamable HTTP, instead of `command`")
    headers: dict[str, SecretStr] = setting({}, "headers of every request to `url`")
    idempotent: tuple[ToolName, ...] = setting(
        (), "tools of the server that Maestro may call again if the effect of a call is unknown"
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
    max_result_chars: int = live(24_000, "characters of a tool result; longer results are cut", ge=100, le=1_000_000)
    search_url: HttpUrl = setting(
        "https://api.duckduckgo.com/", "the address that `web_search` calls; it must answer as DuckDuckGo does"
    )
    files: bool = setting(
        False, "whether `read_file`, `write_file`, `list_files` and `send_file` work, in the conversation's folder"
    )
    shell: bool = setting(False, "whether agents may use `run_shell`, which starts in the conversation's folder")
    here: bool = setting(
        True,
        "whether tool calls may run in this process, because it has the folders of conversations; set it to false for "
        "workers of other hosts, and name `temporal.toolsQueue`",
    )
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
        25, "seconds that a call over MCP waits for a user's answer; then the agent has to ask again", ge=0, le=300
    )

    @property
    def expiry(self) -> timedelta:
        """The time for which a question waits for its answer."""
        return timedelta(hours=self.expiry_hours)


class MemorySettings(Section):
    """The memory of agents."""

    scope: Literal["agent", "conversation"] = live(
        "agent", "where an agent recalls its facts: everywhere, or only in the conversation in which it learned them"
    )


class SkillSettings(Section):
    """Skills: instructions that are added to a prompt when a message matches them."""

    folder: Folder = setting(Path("skills"), "the folder with your own skills, relative to the working directory")
    look_seconds: Seconds = setting(2, "seconds between two checks of the skill files for changes")


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise ValueError("expected a regular expression that Python accepts; correct this one") from None
    return pattern


Pattern = Annotated[str, Field(max_length=2_000), AfterValidator(_check_pattern)]


def _check_allow_entry(entry: str) -> str:
    problem = allow_list_entry_problem(entry)
    if problem is not None:
        raise ValueError(problem)
    return entry


Allowed = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_check_allow_entry)]


class ChatLimits(Section):
    """The limits of a post in the agent chat `#maestro`."""

    max_message_chars: int = live(4096, "characters of the longest post; longer ones are cut", ge=64, le=65_536)


class ScannerSettings(Section):
    """The scan for secrets in texts of agents and users."""

    enabled: bool = live(True, "whether texts are scanned and secrets redacted")
    timeout_ms: int = live(800, "milliseconds for the scan of one text; then `failMode` applies", ge=10, le=60_000)
    fail_mode: Literal["open", "closed"] = live(
        "open",
        "what is stored if a scan takes too long: `open`: the text without the secrets found, `closed`: `[redacted]`",
    )
    patterns: tuple[Pattern, ...] = live((), "your own regular expressions for texts to redact", max_length=100)
    allow: tuple[Allowed, ...] = live(
        (), "findings that are no secrets: texts, or `re:` and a pattern that matches the whole finding", max_length=100
    )
    scope: tuple[Literal["memory", "tools", "logs", "prompts", "outgoing"], ...] = live(
        ("memory", "tools", "logs"),
        "the texts that are scanned besides posts: facts, tool results, the log, prompts or outgoing messages",
    )

    @cached_property
    def rules(self) -> ScanRules:
        """The rules for the scanner that follow from these settings."""
        return ScanRules(self.enabled, self.timeout_ms, self.fail_mode, self.patterns, AllowList(self.allow))


class ChatSettings(Section):
    """The channel `#maestro`, in which agents and people post what they find."""

    enabled: bool = setting(True, "whether the channel exists")
    limits: ChatLimits = ChatLimits()
    scanner: ScannerSettings = ScannerSettings()
    poll_ms: int = live(1000, "milliseconds between two requests of the dashboard for new posts", ge=200, le=60_000)


class SessionSettings(Section):
    """The session of the agent chat `#maestro`: agents see only the posts of the open session."""

    id: OptionalIdentifier = setting("", "the id of the session to use; empty: the open session, else a new one")
