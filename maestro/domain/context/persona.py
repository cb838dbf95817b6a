"""Who an agent is, for its model: what is the same from message to message, so that a provider can keep it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import TypeAdapter

from maestro.domain.agents.agent import Agent
from maestro.domain.conducting.teaching import rules
from maestro.domain.context.layers import Layer, LayerName, LayerSize, cost, fitting, joined, sizes
from maestro.domain.quoting import NAME_CHARS, plain_line, quoted

MOST_DESCRIBED = 30
"""Agents that are told with their purpose; of others only the name by which they are reached."""
PURPOSE_CHARS = 160
"""How much of another agent's purpose is told."""
AGENTS_PART = 10
"""What is told of other agents takes at most one part in so many of the budget."""

MEMORY_SEARCH = "memory_search"

_ALSO = "- also: "


@dataclass(frozen=True)
class Colleague:
    """Another agent, as far as it matters to one that may pass it a task."""

    slug: str
    name: str
    description: str


_QUIRKS = TypeAdapter(tuple[str, ...])


@dataclass(frozen=True)
class Persona:
    """Who an agent is, ready for every prompt in which it is the same."""

    layers: tuple[Layer, ...]

    @cached_property
    def text(self) -> str:
        """What a model reads of it."""
        return joined(self.layers)

    @cached_property
    def tokens(self) -> int:
        """What it takes."""
        return sum(layer.tokens for layer in self.layers)

    @cached_property
    def sizes(self) -> tuple[LayerSize, ...]:
        """How people see its layers."""
        return sizes(self.layers)


def persona(agent: Agent, tools: Collection[str], colleagues: Sequence[Colleague], budget: int) -> Persona:
    """Return who the agent is: identity, purpose and voice, rules, its own prompt, tools and agents.

    ``tools`` are the names of those it may call, ``colleagues`` the agents it may pass a task to. The agent's own words
    are never cut: with half of its instructions it would be another agent.
    """
    agents = Layer(LayerName.AGENTS, _colleagues(colleagues, budget // AGENTS_PART))
    own = (
        Layer(LayerName.IDENTITY, _identity(agent)),
        Layer(LayerName.PURPOSE, "\n".join(_purpose(agent))),
        Layer(LayerName.RULES, rules(agent.role, delegates=bool(agents.text))),
        Layer(LayerName.OWN_PROMPT, agent.system_prompt.strip()),
        Layer(LayerName.TOOLS, _memory_hint(tools)),
    )
    return Persona((*own, agents))


def _identity(agent: Agent) -> str:
    name = plain_line(agent.name)
    return f"You are {name}, an agent that people talk to through Maestro. Speak as {name}."


def _purpose(agent: Agent) -> Iterator[str]:
    if agent.description.strip():
        yield f"Your purpose: {plain_line(agent.description)}"
    if agent.voice.strip():
        yield f"Your voice: {plain_line(agent.voice)}"
    quirks = [plain_line(quirk) for quirk in _QUIRKS.validate_json(agent.quirks) if quirk.strip()]
    if quirks:
        yield "\n".join(["Your ways:", *(f"- {quirk}" for quirk in quirks)])


def _memory_hint(tools: Collection[str]) -> str:
    if MEMORY_SEARCH not in tools:
        return ""
    return (
        f"You remember more than is told here. Look it up with the tool {MEMORY_SEARCH} before you say that you do not "
        "know something about a person or a project."
    )


def _colleagues(agents: Sequence[Colleague], budget: int) -> str:
    """Tell of other agents by their slugs; what describes them was chosen by people and is quoted."""
    heading = "Other agents you can pass a task to, by name and purpose:"
    budget -= cost(heading)
    described = fitting(map(_described, agents[:MOST_DESCRIBED]), budget)
    budget -= cost("\n".join(described)) + cost(_ALSO)
    others = fitting((f"@{agent.slug}, " for agent in agents[MOST_DESCRIBED:]), budget)
    lines = [*described, *([_ALSO + "".join(others).removesuffix(", ")] if others else [])]
    return "\n".join([heading, *lines]) if lines else ""


def _described(agent: Colleague) -> str:
    purpose = agent.description if agent.description.strip() else agent.name
    return f"- @{agent.slug}: {quoted(purpose, PURPOSE_CHARS)}"


def said_by(agent: Colleague) -> str:
    """Return the line under which another agent's words stand in a prompt."""
    return f"[Agent @{agent.slug}, {quoted(agent.name, NAME_CHARS)}, said:]"
