"""The layers (sections) of a prompt, the persona, and the list of agents (docs/decisions.md: prompt layers)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice

from pydantic import ConfigDict, Field, TypeAdapter

from maestro.domain.agents.agent import Agent
from maestro.domain.conducting.conductor import tag_rules
from maestro.domain.llm.models import estimate_tokens
from maestro.domain.people.people import Person
from maestro.domain.texts import NAME_CHARS, plain_line, quote_text
from maestro.domain.values import Value

SEPARATOR = "\n\n"

MOST_DESCRIBED = 30
"""The most agents that a prompt lists with their purpose; further agents are listed by slug only."""
AGENTS_PART = 10
"""The list of other agents gets at most the token budget of the prompt divided by this number."""

MEMORY_SEARCH = "memory_search"

_ALSO = "- also: "

MOST_COLLEAGUES = 60
"""The most agents that a prompt lists: more names do not improve the model's choice."""

OWNERS = "*"
"""The circle (access group) of the owners, who may talk to every agent."""
PUBLIC = ""
"""The circle (access group) of users on no allow-list, and of jobs without a user, such as scheduled jobs."""


class LayerName(StrEnum):
    """The names of all layers (sections) of a prompt, in the order of the prompt.

    The layers from ``identity`` to ``agents`` are the same for every message.
    """

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
    """One layer (section) of the system message; ``note`` says which parts were chosen or left out."""

    name: LayerName
    text: str
    note: str = ""

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens of the layer; 0 if the layer is empty."""
        return tokens_with_separator(self.text) if self.text else 0


class LayerSize(Value):
    """The size of a layer (section) of a prompt; ``tokens`` are estimated, ``note`` says which parts were left out."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    name: LayerName
    characters: int = Field(ge=0)
    tokens: int = Field(ge=0)
    note: str = ""


LAYER_SIZES = TypeAdapter(tuple[LayerSize, ...])
"""A type adapter that reads and writes the sizes of a stored prompt's layers as JSON."""


class TokenRoom:
    """The tokens of a prompt's budget that remain after the layers (sections) so far."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining

    def divide_by(self, parts: int) -> int:
        """Return the remaining tokens divided by ``parts``, at least 0."""
        return max(0, self.remaining) // parts

    def subtract_layer(self, layer: Layer) -> Layer:
        """Subtract the tokens of a layer from the room and return the layer."""
        self.remaining -= layer.tokens
        return layer


def tokens_with_separator(text: str) -> int:
    """Return the estimated tokens of a text and of the separator after it."""
    return estimate_tokens(text) + 1


def take_fitting(texts: Iterable[str], budget: int) -> list[str]:
    """Return the first texts that fit into ``budget`` tokens, each on its own line.

    The selection ends at the first text that does not fit.
    """
    texts = list(texts)
    if tokens_with_separator("\n".join(texts)) <= budget:  # Usually all texts fit, so that a single estimate is enough.
        return texts
    chosen: list[str] = []
    for text in texts:
        budget -= tokens_with_separator(text)
        if budget < 0:
            break
        chosen.append(text)
    return chosen


def join_layers(layers: Iterable[Layer]) -> str:
    """Return the text of several layers, separated by empty lines."""
    return SEPARATOR.join(layer.text for layer in layers if layer.text)


def layer_sizes(layers: Iterable[Layer]) -> tuple[LayerSize, ...]:
    """Return the sizes of the layers that are not empty."""
    return tuple(
        LayerSize(name=layer.name, characters=len(layer.text), tokens=layer.tokens, note=layer.note)
        for layer in layers
        if layer.text
    )


@dataclass(frozen=True)
class Colleague:
    """Another agent, as described to an agent that may delegate tasks to it."""

    slug: str
    name: str
    description: str


_QUIRKS = TypeAdapter(tuple[str, ...])


@dataclass(frozen=True)
class Persona:
    """The constant part of an agent's prompts: the layers (sections) that are the same in every prompt."""

    layers: tuple[Layer, ...]

    @cached_property
    def text(self) -> str:
        return join_layers(self.layers)

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens of all layers."""
        return sum(layer.tokens for layer in self.layers)

    @cached_property
    def sizes(self) -> tuple[LayerSize, ...]:
        return layer_sizes(self.layers)


def build_persona(agent: Agent, tools: Collection[str], colleagues: Sequence[Colleague], budget: int) -> Persona:
    """Return the persona of an agent: identity, purpose and voice, rules, its own prompt, tools and agents.

    ``tools`` are the names of the tools that the agent may call, ``colleagues`` the agents to which it may delegate.
    ``budget`` is the budget of the whole prompt, in tokens. The agent's own prompt is never cut, because half of its
    instructions would change the agent.
    """
    agents = Layer(LayerName.AGENTS, _agent_list(colleagues, budget // AGENTS_PART))
    name = plain_line(agent.name)
    identity = f"You are {name}, an agent that people talk to through Maestro. Speak as {name}."
    memory_hint = (
        f"You remember more than is told here. Look it up with the tool {MEMORY_SEARCH} before you say that you do not "
        "know something about a person or a project."
    )
    return Persona(
        (
            Layer(LayerName.IDENTITY, identity),
            Layer(LayerName.PURPOSE, "\n".join(_describe_agent(agent))),
            Layer(LayerName.RULES, tag_rules(agent.role, delegates=bool(agents.text))),
            Layer(LayerName.OWN_PROMPT, agent.system_prompt.strip()),
            Layer(LayerName.TOOLS, memory_hint if MEMORY_SEARCH in tools else ""),
            agents,
        )
    )


def _describe_agent(agent: Agent) -> Iterator[str]:
    if agent.description.strip():
        yield f"Your purpose: {plain_line(agent.description)}"
    if agent.voice.strip():
        yield f"Your voice: {plain_line(agent.voice)}"
    if agent.language.strip():
        yield f"Answer in this language, whatever language you are asked in: {plain_line(agent.language)}"
    quirks = [plain_line(quirk) for quirk in _QUIRKS.validate_json(agent.quirks) if quirk.strip()]
    if quirks:
        yield "\n".join(["Your ways:", *(f"- {quirk}" for quirk in quirks)])


def _agent_list(agents: Sequence[Colleague], budget: int) -> str:
    """Return the list of other agents by slug; descriptions are quoted, because users wrote them."""
    heading = "Other agents you can pass a task to, by name and purpose:"
    budget -= tokens_with_separator(heading)
    purposes = ((agent.slug, agent.description.strip() or agent.name) for agent in agents[:MOST_DESCRIBED])
    described = take_fitting((f"- @{slug}: {quote_text(purpose, 160)}" for slug, purpose in purposes), budget)
    budget -= tokens_with_separator("\n".join(described)) + tokens_with_separator(_ALSO)
    others = take_fitting((f"@{agent.slug}, " for agent in agents[MOST_DESCRIBED:]), budget)
    lines = [*described, *([_ALSO + "".join(others).removesuffix(", ")] if others else [])]
    return "\n".join([heading, *lines]) if lines else ""


def speaker_line(agent: Colleague) -> str:
    """Return the line that names another agent as the author of the text below it."""
    return f"[Agent @{agent.slug}, {quote_text(agent.name, NAME_CHARS)}, said:]"


@dataclass(frozen=True)
class AgentListing:
    """An active agent; ``people`` are the users that may talk to the agent, as ``platform:userId``, None for all."""

    agent_id: int
    colleague: Colleague
    people: frozenset[str] | None


@dataclass(frozen=True)
class AgentDirectory:
    """The active agents, sorted by slug.

    A *circle* names a group of users with access to the same agents: the owners, the public, or one user on an
    allow-list. So the number of circles depends on the allow-lists and not on the number of users.
    """

    members: Sequence[AgentListing]

    @cached_property
    def _listed_people(self) -> frozenset[str]:
        return frozenset().union(*(member.people for member in self.members if member.people is not None))

    def find_circle(self, person: Person | None) -> str:
        """Return the circle (access group) of a user; ``PUBLIC`` if there is no user."""
        if person is None:
            return PUBLIC
        if person.is_owner:
            return OWNERS
        return str(person.id) if str(person.id) in self._listed_people else PUBLIC

    def list_colleagues(self, agent_id: int, circle: str) -> tuple[Colleague, ...]:
        """Return the other agents to which the users of a circle may talk, at most ``MOST_COLLEAGUES``."""
        accessible = (
            member.colleague
            for member in self.members
            if member.agent_id != agent_id and (member.people is None or circle == OWNERS or circle in member.people)
        )
        return tuple(islice(accessible, MOST_COLLEAGUES))
