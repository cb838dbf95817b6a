"""Tools of other people: whatever installed package registers one under the entry point ``maestro.tools``."""

import json
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points

import structlog

from maestro.tools.base import Tool
from maestro.tools.registry import check_parameters, is_tool

GROUP = "maestro.tools"

_log = structlog.get_logger(__name__)


def installed_tools(taken: Iterable[str]) -> list[Tool]:
    """Return the tools of all installed packages, in the order of their names.

    An entry point names something that is called without arguments and returns a tool or several. What cannot be
    loaded, is no tool or has a name that is taken is reported in the log and left out; the others work.
    """
    names = set(taken)
    tools: list[Tool] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        for tool in _loaded(entry):
            if tool.spec.name in names:
                _log.error("a tool was left out: its name is taken", tool=tool.spec.name, entry=entry.value)
                continue
            names.add(tool.spec.name)
            tools.append(tool)
    return tools


def _loaded(entry: EntryPoint) -> list[Tool]:
    try:
        return list(_made(entry.load()))
    except Exception as error:  # noqa: BLE001 - a tool that is broken does not stop the others
        _log.error("a tool was left out: it cannot be loaded", entry=entry.value, error=f"{error!r:.300}")
        return []


def _made(factory: Callable[[], Tool | Iterable[Tool]]) -> Iterator[Tool]:
    made = factory()
    for tool in made if isinstance(made, Iterable) else [made]:
        if not is_tool(tool):
            raise TypeError(f"{type(tool).__name__} is no tool: it needs spec, idempotent, read_only and a way to act")
        check_parameters(json.loads(tool.spec.parameters))
        yield tool
