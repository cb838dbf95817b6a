"""The layers a prompt is made of, in their order, and how people see them (docs/decisions.md: prompt layers)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from pydantic import Field, TypeAdapter

from maestro.domain.llm.tokens import estimate
from maestro.domain.values import Value

SEPARATOR = "\n\n"


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


class Room:
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
