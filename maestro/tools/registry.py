"""The tools there are: which of them an agent may call, what a model is told of them, and whether it asks properly."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY

from maestro.domain.agents.agent import Agent
from maestro.domain.chat.message import takes_part
from maestro.domain.llm.prompts import ToolSpec
from maestro.domain.texts import storable
from maestro.tools.base import Acts, Arguments, Asks, Runs, Tool, ToolFailure

MAX_ARGUMENT_CHARS = 200_000
"""Characters of the longest arguments that are read at all."""

TOLD_ERRORS = 3
TOLD_CHARS = 300


class ToolSource(Protocol):
    """Brings tools that come and go, such as those of servers elsewhere."""

    def tools(self) -> Sequence[Tool]:
        """Return those that can be called now; never blocks."""
        ...

    async def settled(self) -> None:
        """Return when it is known what there is, or when that takes too long."""
        ...

    async def serve(self) -> None:
        """Look after where they come from until cancelled; never returns by itself."""
        ...


class Tools:
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

        Those of the ``chat`` have all agents that take part in it, whatever they list, and nobody else.
        """
        self._chat = {tool.spec.name: tool for tool in chat}
        self._fixed = {tool.spec.name: tool for tool in fixed} | self._chat
        self._default = frozenset(default)
        self._source = source

    async def settled(self) -> None:
        """Wait a short while for tools that are still being looked for; at once when none are."""
        if self._source is not None:
            await self._source.settled()

    async def serve(self) -> None:
        """Keep open what tools need, as a service of the process; when cancelled, close it in good order."""
        if self._source is None:
            await asyncio.Event().wait()
        else:
            await self._source.serve()

    def specs(self, agent: Agent) -> tuple[ToolSpec, ...]:
        """Return what an agent's model is told, by name: the tools that it lists, or the default ones, and the chat.

        Names nobody has are left out: a server may be away, and a tool may be switched off.
        """
        names = self._names(agent)
        return tuple(tool.spec for name, tool in sorted(self._all().items()) if name in names)

    def find(self, name: str, agent: Agent) -> Tool:
        """Return the tool a model asked for; raises ``ToolFailure`` for one that the agent may not call now."""
        names = self._names(agent)
        tool = self._all().get(name) if name in names else None
        if tool is None:
            usable = ", ".join(spec.name for spec in self.specs(agent)) or "none"
            trouble = "is not available at the moment" if name in names else "does not exist"
            raise ToolFailure(f"The tool {name[:64]} {trouble}. You can call: {usable}.")
        return tool

    def parse(self, tool: Tool, arguments: str) -> Arguments:
        """Return the arguments a model wrote; raises ``ToolFailure`` that tells it what is wrong with them."""
        return parse(tool.spec, arguments)

    def _names(self, agent: Agent) -> frozenset[str]:
        listed = self._default if agent.tool_names is None else frozenset(agent.tool_names)
        return listed | self._chat.keys() if takes_part(agent) else listed - self._chat.keys()

    def _all(self) -> Mapping[str, Tool]:
        """Return every tool by its name; what is built in cannot be replaced by what comes from elsewhere."""
        if self._source is None:
            return self._fixed
        return {tool.spec.name: tool for tool in self._source.tools()} | self._fixed


def is_tool(candidate: object) -> bool:
    """Say whether an object has all that a tool must have."""
    flags = (getattr(candidate, "idempotent", None), getattr(candidate, "read_only", None))
    return (
        isinstance(candidate, Runs | Acts | Asks)
        and isinstance(getattr(candidate, "spec", None), ToolSpec)
        and all(isinstance(flag, bool) for flag in flags)
    )


class Described(Protocol):
    """A tool as far as its arguments go: its name, and their JSON schema as canonical JSON."""

    @property
    def name(self) -> str:
        """What it is called by who called it."""
        ...

    @property
    def parameters(self) -> str:
        """The schema."""
        ...


def parse(spec: Described, text: str) -> Arguments:
    """Return the arguments a model wrote; raises ``ToolFailure`` that tells it what is wrong with them."""
    if len(text) > MAX_ARGUMENT_CHARS:
        raise ToolFailure(f"The arguments are longer than {MAX_ARGUMENT_CHARS:,} characters. Send less at once.")
    try:
        arguments = _clean(json.loads(text, parse_constant=_no_number)) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ToolFailure(f"The arguments are not valid JSON ({error}). {_expected(spec)}") from None
    if not isinstance(arguments, dict):
        raise ToolFailure(f"The arguments must be one JSON object. {_expected(spec)}")
    try:
        errors = sorted(_checker(spec.parameters)(arguments), key=lambda error: [str(part) for part in error.path])
    except (Unresolvable, RecursionError):  # of a schema from elsewhere
        raise ToolFailure(
            f"The arguments cannot be checked: the schema of {spec.name} is broken. Do without."
        ) from None
    if errors:
        told = "; ".join(_told(error) for error in errors[:TOLD_ERRORS])
        raise ToolFailure(f"The arguments are wrong: {told}. {_expected(spec)}")
    return arguments


def check_parameters(schema: Mapping[str, Any]) -> None:
    """Raise ``jsonschema.SchemaError`` for what is no JSON schema."""
    Draft202012Validator.check_schema(schema)


@lru_cache(maxsize=1000)
def _checker(parameters: str) -> Callable[[Mapping[str, Any]], Iterable[ValidationError]]:
    # Without a registry of its own the library would fetch what a schema refers to from wherever it says.
    kind: Any = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator, dict.fromkeys(("pattern", "patternProperties"), _left_to_the_tool)
    )
    checker: Callable[[Mapping[str, Any]], Iterable[ValidationError]] = kind(
        json.loads(parameters), registry=EMPTY_REGISTRY
    ).iter_errors
    return checker


def _left_to_the_tool(*_: object) -> Iterable[ValidationError]:
    """Check no patterns: a hostile one would take for ever, and whoever wrote it checks it anyway."""
    return ()


def _told(error: ValidationError) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    text = error.message if len(error.message) <= TOLD_CHARS else f"{error.message[:TOLD_CHARS]} ..."
    return f"{where}: {text}" if where else text


def _expected(spec: Described) -> str:
    return f"Call {spec.name} with one JSON object that fits this schema: {spec.parameters}"


def _clean(value: Any) -> Any:
    """Return the value without what no store and no other program takes: JSON can spell half a surrogate pair."""
    match value:
        case str():
            return storable(value)
        case list():
            return [_clean(one) for one in value]
        case dict():
            return {storable(name): _clean(one) for name, one in value.items()}
    return value


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not a number in JSON")
