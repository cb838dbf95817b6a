"""The tools of a process, including those of installed packages: access of agents, checks of arguments, and calls."""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, TypeVar

import structlog
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY

from maestro.domain.agent_chat import takes_part
from maestro.domain.agents.agent import Agent
from maestro.domain.errors import MaestroError, StoreBusy
from maestro.domain.llm.prompts import ToolCall, ToolSpec
from maestro.domain.texts import storable_text
from maestro.domain.tools import ToolState
from maestro.store.transaction import Transaction, open_savepoint
from maestro.tools.base import (
    Arguments,
    AsyncTool,
    PreparingTool,
    QuestionTool,
    StoreTool,
    Tool,
    ToolCaller,
    ToolFailure,
    ToolImage,
    ToolOutput,
    ToolQuestion,
)

MAX_ARGUMENT_CHARS = 200_000
"""The most characters of a call's arguments; longer arguments are refused without parsing."""

MAX_NAME_CHARS = 64
_HASH_CHARS = 8

SHOWN_CHARS = 300

GROUP = "maestro.tools"

_log = structlog.get_logger(__name__)

GRACE_SECONDS = 10.0
"""Seconds that a cancelled tool may take to end."""

Result = TypeVar("Result")


class ToolSource(Protocol):
    """A source of tools that appear and disappear, such as MCP servers."""

    def tools(self) -> Sequence[Tool]:
        """Return the tools that can be called now; never blocks."""
        ...

    async def settled(self) -> None:
        """Return when the tools of the source are known, or when finding them takes too long."""
        ...

    async def serve(self) -> None:
        """Keep the source open until cancelled."""
        ...


class ToolRegistry:
    """All tools of a process."""

    def __init__(
        self,
        fixed: Iterable[Tool],
        default: Iterable[str],
        source: ToolSource | None = None,
        *,
        chat: Iterable[Tool] = (),
    ) -> None:
        """``default`` names the tools of agents that list none.

        The ``chat`` tools are for all agents in the chat, whatever tools they list, and for no other agents.
        """
        self._chat = {tool.spec.name: tool for tool in chat}
        self._fixed = {tool.spec.name: tool for tool in fixed} | self._chat
        self._default = frozenset(default)
        self._source = source

    async def wait_until_settled(self) -> None:
        """Wait a short while for a source that is still connecting; return at once without a source."""
        if self._source is not None:
            await self._source.settled()

    async def keep_sources_open(self) -> None:
        """Keep the sources of tools open until cancelled; then close them."""
        if self._source is None:
            await asyncio.Event().wait()
        else:
            await self._source.serve()

    def list_tools(self, agent: Agent) -> tuple[ToolSpec, ...]:
        """Return an agent's tools by name: those that it lists, or else the default tools, and the tools of the chat.

        Names of missing tools are left out: a server may be disconnected, or a tool switched off.
        """
        names = self._tool_names(agent)
        return tuple(tool.spec for name, tool in sorted(self._all_tools().items()) if name in names)

    def find_tool(self, name: str, agent: Agent) -> Tool:
        """Return the tool that a model asked for; raises ``ToolFailure`` for a tool that the agent may not call now."""
        names = self._tool_names(agent)
        tool = self._all_tools().get(name) if name in names else None
        if tool is None:
            usable = ", ".join(spec.name for spec in self.list_tools(agent)) or "none"
            problem = "is not available at the moment" if name in names else "does not exist"
            raise ToolFailure(f"The tool {name[:64]} {problem}. You can call: {usable}.")
        return tool

    def _tool_names(self, agent: Agent) -> frozenset[str]:
        listed = self._default if agent.tool_names is None else frozenset(agent.tool_names)
        return listed | self._chat.keys() if takes_part(agent) else listed - self._chat.keys()

    def _all_tools(self) -> Mapping[str, Tool]:
        """Return all tools by name; a built-in tool replaces any other of the same name."""
        if self._source is None:
            return self._fixed
        return {tool.spec.name: tool for tool in self._source.tools()} | self._fixed


def local_name(server: str, tool: str) -> str:
    """Return the name by which agents call a tool of an MCP server: every provider accepts it, and it never changes."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{tool}")
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(tool.encode()).hexdigest()[:_HASH_CHARS]
    return f"{name[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{digest}"


def parse_arguments(name: str, parameters: str, text: str) -> Arguments:
    """Return the arguments that a model wrote; raises ``ToolFailure`` that tells the model how to correct them.

    ``name`` is the tool's name for the caller, ``parameters`` the schema of its arguments as canonical JSON.
    """
    hint = f"Call {name} with one JSON object that fits this schema: {parameters}"
    if len(text) > MAX_ARGUMENT_CHARS:
        raise ToolFailure(f"The arguments are longer than {MAX_ARGUMENT_CHARS:,} characters. Send less at once.")
    try:
        arguments = remove_surrogates(json.loads(text, parse_constant=_refuse_constant)) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ToolFailure(f"The arguments are not valid JSON ({error}). {hint}") from None
    if not isinstance(arguments, dict):
        raise ToolFailure(f"The arguments must be one JSON object. {hint}")
    try:
        errors = sorted(schema_checker(parameters)(arguments), key=lambda error: [str(part) for part in error.path])
    except (Unresolvable, RecursionError):  # An MCP server may have an unresolvable or recursive schema.
        raise ToolFailure(
            f"The arguments cannot be checked: the schema of {name} is invalid. Do not use this tool."
        ) from None
    if errors:
        problems = "; ".join(_error_text(error) for error in errors[:3])
        raise ToolFailure(f"The arguments are wrong: {problems}. {hint}")
    return arguments


def check_parameters(schema: Mapping[str, Any]) -> None:
    """Raise ``jsonschema.SchemaError`` for an invalid JSON schema."""
    Draft202012Validator.check_schema(schema)


@lru_cache(maxsize=1000)
def schema_checker(parameters: str) -> Callable[[Mapping[str, Any]], Iterable[ValidationError]]:
    # The schema registry is empty: otherwise the library would fetch the references of a schema from any address.
    kind: Any = extend(  # type: ignore[no-untyped-call]
        # Matching a hostile pattern may never end, so patterns are skipped; the tool checks its arguments itself.
        Draft202012Validator,
        dict.fromkeys(("pattern", "patternProperties"), lambda *_: ()),
    )
    checker: Callable[[Mapping[str, Any]], Iterable[ValidationError]] = kind(
        json.loads(parameters), registry=EMPTY_REGISTRY
    ).iter_errors
    return checker


def _error_text(error: ValidationError) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    text = error.message if len(error.message) <= SHOWN_CHARS else f"{error.message[:SHOWN_CHARS]} ..."
    return f"{where}: {text}" if where else text


def remove_surrogates(value: Any) -> Any:
    """Return the value without unpaired surrogates, which JSON can contain and no store accepts."""
    match value:
        case str():
            return storable_text(value)
        case list():
            return [remove_surrogates(item) for item in value]
        case dict():
            return {storable_text(name): remove_surrogates(item) for name, item in value.items()}
    return value


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number in JSON")


def installed_tools(taken: Iterable[str]) -> list[Tool]:
    """Return the tools of all installed packages, in the order of the names of their entry points.

    An entry point names a callable without arguments that returns one tool or several. A tool that cannot be loaded, is
    invalid or has a taken name is logged and left out.
    """
    names = set(taken)
    tools: list[Tool] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        for tool in _load_tools(entry):
            if tool.spec.name in names:
                _log.error("a tool was left out: its name is taken", tool=tool.spec.name, entry=entry.value)
                continue
            names.add(tool.spec.name)
            tools.append(tool)
    return tools


def _load_tools(entry: EntryPoint) -> list[Tool]:
    try:
        product = entry.load()()
        tools = list(product) if isinstance(product, Iterable) else [product]
        for tool in tools:
            _check_tool(tool)
    except Exception as error:  # noqa: BLE001 - a tool that is broken does not stop the others
        _log.error("a tool was left out: it cannot be loaded", entry=entry.value, error=f"{error!r:.300}")
        return []
    return tools


def _check_tool(tool: Tool) -> None:
    flags = (getattr(tool, "idempotent", None), getattr(tool, "read_only", None))
    if not (
        isinstance(tool, AsyncTool | StoreTool | QuestionTool)
        and isinstance(getattr(tool, "spec", None), ToolSpec)
        and all(isinstance(flag, bool) for flag in flags)
    ):
        raise TypeError(f"{type(tool).__name__} is no tool: a tool needs spec, idempotent, read_only and a way to act")
    check_parameters(json.loads(tool.spec.parameters))


@dataclass(frozen=True)
class ToolCallResult:
    """The result of a tool call: text and pictures for the model, and the state of the call."""

    text: str
    state: ToolState = ToolState.DONE
    pictures: tuple[ToolImage, ...] = ()


@dataclass(frozen=True)
class ParsedToolCall:
    """A tool call with an existing tool and valid arguments."""

    tool: Tool
    arguments: Arguments


def parse_call(registry: ToolRegistry, call: ToolCall, agent: Agent) -> ParsedToolCall | ToolCallResult:
    """Return the tool and the checked arguments of a call, or the failure to show to the model."""
    try:
        tool = registry.find_tool(call.name, agent)
        return ParsedToolCall(tool, parse_arguments(tool.spec.name, tool.spec.parameters, call.arguments))
    except ToolFailure as failure:
        return ToolCallResult(str(failure), ToolState.FAILED)


def ask_tool(tool: QuestionTool, arguments: Arguments) -> ToolQuestion | ToolCallResult:
    """Return the tool's question for a user, or the failure to show to the model."""
    return _run_guarded(tool, lambda: tool.question(arguments))


async def run_tool(tool: AsyncTool, arguments: Arguments, caller: ToolCaller, seconds: float) -> ToolCallResult:
    """Run a tool with a timeout in seconds; only a cancellation is raised.

    A tool that ignores its cancellation is left running, so that no job waits for it.
    """
    task = asyncio.create_task(_await_result(tool, arguments, caller))
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return _unexpected_failure(tool, asyncio.CancelledError()) if task.cancelled() else task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE_SECONDS)
            if not task.done():
                _log.warning("tool.left_behind", tool=type(tool).__name__)
    return ToolCallResult(f"The tool did not finish within {seconds:g} seconds.", ToolState.FAILED)


def prepare_call(call: ParsedToolCall, caller: ToolCaller) -> ParsedToolCall | ToolCallResult:
    """Do the slow work of a tool before its transaction; return the prepared call, or the failure for the model."""
    tool = call.tool
    if not isinstance(tool, PreparingTool):
        return call
    # A busy store, and files that cannot be stored now, are waited for.
    return _run_guarded(tool, lambda: ParsedToolCall(tool, tool.prepared(call.arguments, caller)), StoreBusy)


def run_in_store(tool: StoreTool, tx: Transaction, arguments: Arguments, caller: ToolCaller) -> ToolCallResult:
    """Let a tool change the store in this transaction; a failure rolls back the tool's changes only."""

    def change() -> ToolCallResult:
        with open_savepoint(tx):
            return ToolCallResult(str(tool.act(tx, arguments, caller)))

    return _run_guarded(tool, change, MaestroError)


def _run_guarded(
    tool: StoreTool | QuestionTool, work: Callable[[], Result], passing: type[Exception] | tuple[()] = ()
) -> Result | ToolCallResult:
    """Do the work and return its result, or its failure as a result; only errors in ``passing`` are raised."""
    try:
        return work()
    except ToolFailure as failure:
        return ToolCallResult(str(failure), ToolState.FAILED)
    except passing:
        raise
    except Exception as error:  # noqa: BLE001 - a tool may raise anything
        return _unexpected_failure(tool, error)


async def _await_result(tool: AsyncTool, arguments: Arguments, caller: ToolCaller) -> ToolCallResult:
    try:
        output = await tool.run(arguments, caller)
        output = output if isinstance(output, ToolOutput) else ToolOutput(str(output))
        return ToolCallResult(output.text, pictures=output.pictures)
    except ToolFailure as failure:
        return ToolCallResult(str(failure), ToolState.FAILED)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    # Tools of installed packages may raise anything, even SystemExit; no error may lose the answer or end the process.
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0:
            raise
        return _unexpected_failure(tool, error)


def _unexpected_failure(tool: AsyncTool | StoreTool | QuestionTool, error: BaseException) -> ToolCallResult:
    _log.warning("tool.broken", tool=type(tool).__name__, error=type(error).__name__)
    return ToolCallResult(f"The tool failed unexpectedly ({type(error).__name__}).", ToolState.FAILED)
