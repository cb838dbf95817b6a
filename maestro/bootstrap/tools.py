"""Builds the tools of a process (built in, enabled, installed, or of MCP servers), the chat and the scanner."""

from collections.abc import Callable, Iterator
from importlib import import_module

import structlog

from maestro.chat import ChatService
from maestro.child_process import plain_environment
from maestro.domain.agent_chat import takes_part
from maestro.domain.agents.agent import Agent
from maestro.domain.redaction import SecretScanner
from maestro.installation.storage import open_files
from maestro.scanner.scanner import DetectSecretsScanner, GuardedScanner
from maestro.settings import Settings, read_environment
from maestro.settings.live import LiveSettings, RedactionScope
from maestro.store.store import Store, utc_now
from maestro.tools.base import Tool
from maestro.tools.chat import AskQuestion, ChatGetNew, ChatPost
from maestro.tools.files import ListFiles, ReadFile, RunShell, SendFile, WriteFile
from maestro.tools.local import Calculate, GetTime, MemorySearch
from maestro.tools.registry import ToolRegistry, ToolSource, installed_tools, local_name
from maestro.tools.web import HttpFetch, WebSearch

_ENABLING_KEYS = {
    "read_file": "tools.files",
    "write_file": "tools.files",
    "list_files": "tools.files",
    "send_file": "tools.files",
    "run_shell": "tools.shell",
    "chat_post": "chat.enabled",
    "chat_get_new": "chat.enabled",
}

CHAT_TOOLS = frozenset({ChatPost.spec.name, ChatGetNew.spec.name})

_log = structlog.get_logger(__name__)


def build_tools(live: LiveSettings, chat: ChatService | None = None) -> ToolRegistry:
    """Return the registry of all tools; without ``chat`` the tools of the agent chat are absent.

    The registry's ``keep_sources_open`` has to run for the whole life of the process: it keeps the MCP servers open.
    """
    settings = live.start
    environment = plain_environment(read_environment())
    private = frozenset(host.lower() for host in settings.tools.private_hosts)
    fixed: list[Tool] = [AskQuestion(), Calculate(), GetTime(utc_now), HttpFetch(private), MemorySearch()]
    fixed.append(WebSearch(settings.tools.search_url, private))
    if settings.tools.files:
        fixed += [ReadFile(), WriteFile(), ListFiles(), SendFile(open_files(settings))]
    if settings.tools.shell:
        # A command ends before the timeout of its tool call, so that its output can be returned.
        fixed.append(RunShell(environment, live.of(lambda settings: settings.tools.timeout_seconds * 0.9)))
    fixed += installed_tools(taken=[*(tool.spec.name for tool in fixed), *_ENABLING_KEYS])
    chat_tools: list[Tool] = [ChatPost(chat), ChatGetNew()] if chat is not None else []
    for name, fix in unknown_tools(settings, {tool.spec.name for tool in [*fixed, *chat_tools]}):
        _log.warning("the configuration names an unknown tool", tool=name, fix=fix)
    source: ToolSource | None = None
    if settings.tools.mcp:  # The import of the MCP SDK takes half a second.
        source = import_module("maestro.tools.mcp_client").McpServers(settings.tools.mcp, environment)
    return ToolRegistry(fixed, settings.tools.default, source, chat=chat_tools)


def tool_names(live: LiveSettings) -> Callable[[Agent], frozenset[str]]:
    """Return a function that returns the names of the tools that an agent may call.

    Only the process that runs an MCP server knows the server's tools, so here every tool that is allowed is named.
    """
    settings = live.start

    def names_of(agent: Agent) -> frozenset[str]:
        own = frozenset(settings.tools.default if agent.tool_names is None else agent.tool_names) - CHAT_TOOLS
        return own | CHAT_TOOLS if settings.chat.enabled and takes_part(agent) else own

    return names_of


def unknown_tools(settings: Settings, known: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each configured tool name that no tool has, and how to fix the configuration.

    The tools of an MCP server are unknown here, so names with the prefix of a configured server are not reported.
    """
    named = {*settings.tools.default, *settings.tools.approval}
    for agent in settings.agents:
        named.update(agent.tools or ())
    servers = tuple(local_name(server.name, "") for server in settings.tools.mcp)
    for name in sorted(named - known):
        if name in _ENABLING_KEYS:
            yield name, f"set {_ENABLING_KEYS[name]} to true, or take the name out"
        elif not name.startswith(servers):
            yield name, "correct the name in tools.default, tools.approval or an agent's tools"


def build_chat(live: LiveSettings, store: Store, scanner: SecretScanner) -> ChatService | None:
    """Return the service of the agent chat, or None if the settings disable the chat."""
    return ChatService(store, scanner, live.of(lambda settings: settings.chat)) if live.start.chat.enabled else None


def build_scanner(failed: Callable[[], None]) -> SecretScanner:
    """Return the scanner for secrets, which calls ``failed`` for each text that it could not scan completely."""
    return GuardedScanner(DetectSecretsScanner(), failed)


def build_redaction(live: LiveSettings, failed: Callable[[], None] = lambda: None) -> RedactionScope:
    """Return the redaction of texts, with a new scanner that calls ``failed`` for each text not fully scanned."""
    return RedactionScope(build_scanner(failed), live)
