"""The layers of a prompt in their order, the persona of an agent, and the colleagues it is told of.

See docs/decisions.md: prompt layers, delegation.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice

from pydantic import Field, TypeAdapter

from maestro.domain.agents.agent import Agent
from maestro.domain.conducting.teaching import rules
from maestro.domain.llm.models import estimate
from maestro.domain.people.permissions import Person
from maestro.domain.texts import NAME_CHARS, plain_line, quoted
from maestro.domain.values import Value

SEPARATOR = "\n\n"

MOST_DESCRIBED = 30
"""Agents that are told with their purpose; of others only the name by which they are reached."""
PURPOSE_CHARS = 160
"""How much of another agent's purpose is told."""
AGENTS_PART = 10
"""What is told of other agents takes at most one part in so many of the budget."""

MEMORY_SEARCH = "memory_search"

_ALSO = "- also: "

MOST_COLLEAGUES = 60
"""How many agents are told: a model that knows more names than that chooses no better."""

EVERYBODY = "*"
"""The circle of an owner."""
PUBLIC = ""
"""The circle of who is on no agent's list, and of nobody, as in a scheduled job."""


class LayerName(StrEnum):
    """Every layer, in the order of the prompt; those up to ``agents`` are the same from message to message."""

    IDENTITY = "identity"
    PURPOSE = "purpose"
    RULES = "rules"
    OWN_PROMPT = "own prompt"
    TOOLS = "tools"
    AGENTS = "agents"
    SKILLS = "skills"
    STICKY_FACTS = "sticky facts"
    FACTS = "facts"
    STATE = "state"
    MOMENT = "moment"
    SUMMARIES = "summaries"
    CHAT = "chat"
    HISTORY = "history"
    ASKED = "asked"


@dataclass(frozen=True)
class Layer:
    """One layer of the system message; ``note`` says what of it is shown where that is not plain."""

    name: LayerName
    text: str
    note: str = ""

    @cached_property
    def tokens(self) -> int:
        """What it takes; nothing when it is empty."""
        return cost(self.text) if self.text else 0

    @property
    def size(self) -> "LayerSize":
        """How people see it."""
        return LayerSize(name=self.name, characters=len(self.text), tokens=self.tokens, note=self.note)


class LayerSize(Value):
    """What a layer takes of a prompt, in characters and in tokens as they are estimated."""

    name: LayerName
    characters: int = Field(ge=0)
    tokens: int = Field(ge=0)
    note: str = ""


LAYER_SIZES = TypeAdapter(tuple[LayerSize, ...])
"""Reads and writes the layers of a stored prompt as JSON."""


class TokenRoom:
    """The tokens that are left of a budget, from which one layer after the other takes its own."""

    def __init__(self, left: int) -> None:
        self.left = left

    def share(self, parts: int) -> int:
        """Return so many-eth of what is left."""
        return max(0, self.left) // parts

    def take(self, layer: Layer) -> Layer:
        """Take what a layer needs."""
        self.left -= layer.tokens
        return layer


def cost(text: str) -> int:
    """Return what a text takes in tokens, with what parts it from the next one."""
    return estimate(text) + 1


def fitting(texts: Iterable[str], budget: int) -> list[str]:
    """Return the first texts that fit, each with a line of its own; the first one that does not ends them."""
    texts = list(texts)
    if cost("\n".join(texts)) <= budget:  # the rule, and it is estimated at once
        return texts
    chosen: list[str] = []
    for text in texts:
        budget -= cost(text)
        if budget < 0:
            break
        chosen.append(text)
    return chosen


def joined(layers: Iterable[Layer]) -> str:
    """Return the text of layers, one after the other."""
    return SEPARATOR.join(layer.text for layer in layers if layer.text)


def total(layers: Sequence[Layer]) -> int:
    """Return what layers take together."""
    return sum(layer.tokens for layer in layers)


def sizes(layers: Iterable[Layer]) -> tuple[LayerSize, ...]:
    """Return how people see layers, those that are empty left out."""
    return tuple(layer.size for layer in layers if layer.text)


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
    if agent.language.strip():
        yield f"Answer in this language, whatever language you are asked in: {plain_line(agent.language)}"
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


def speaker_line(agent: Colleague) -> str:
    """Return the line under which another agent's words stand in a prompt."""
    return f"[Agent @{agent.slug}, {quoted(agent.name, NAME_CHARS)}, said:]"


@dataclass(frozen=True)
class AgentListing:
    """An active agent; ``people`` are those who may talk to it, as ``platform:userId``, None for all."""

    agent_id: int
    colleague: Colleague
    people: frozenset[str] | None


@dataclass(frozen=True)
class AgentDirectory:
    """The active agents by slug.

    A *circle* stands for all people who may talk to the same agents: an owner's, the public one, or one person's who is
    on a list. There are as many as there are people on lists, and not as many as there are people.
    """

    members: Sequence[AgentListing]

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset().union(*(member.people for member in self.members if member.people is not None))

    def circle(self, person: Person | None) -> str:
        """Return the circle of a person."""
        if person is None:
            return PUBLIC
        if person.is_owner:
            return EVERYBODY
        return str(person.id) if str(person.id) in self._listed else PUBLIC

    def colleagues(self, agent_id: int, circle: str) -> tuple[Colleague, ...]:
        """Return the agents beside this one that a circle may talk to, and no more of them than a prompt tells."""
        open_ones = (
            member.colleague
            for member in self.members
            if member.agent_id != agent_id and (member.people is None or circle == EVERYBODY or circle in member.people)
        )
        return tuple(islice(open_ones, MOST_COLLEAGUES))
