"""Who answers a message, by mentions, bindings and rules, or why no agent does.

See docs/decisions.md: routing.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from maestro.domain.agents.agent import CONDUCTOR
from maestro.domain.messages import Address, Addressing, IncomingMessage
from maestro.domain.settings.access import RoutingSettings

MOST_MARKS = 1_000
"""How many ``@`` of a text are looked at: nobody means an agent with a later one, and a text may be full of them."""
_MARK = re.compile("[@\uff20\ufe6b]")
_LOCAL_PART = ".+-%"
"""What may stand between the letters before the ``@`` of an e-mail address."""
_JOINS = "-."
"""What makes one token of two words: ``@coder-2`` and ``@coder.example`` do not mean ``coder``."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts that put no blank between words, or none before what is attached to a name: they end a token."""

DASHBOARD_PREFIX = "dashboard-agent-"
DASHBOARD_PLATFORM = "web"
OWN = "all messages of this account are for the agent"
UNMENTIONED = "neither the bot nor its agent is mentioned (requireMention)"


class NamedAgent(Protocol):
    """An agent under its id, and the names it goes by."""

    @property
    def id(self) -> int:
        """Its id."""
        ...

    @property
    def slug(self) -> str:
        """Its slug."""
        ...

    @property
    def name(self) -> str:
        """The name people see."""
        ...


def may_mention(content: str) -> bool:
    """Say whether a text can mention anybody."""
    return _MARK.search(content) is not None


def find_mention(content: str, agents: Sequence[NamedAgent]) -> int | None:
    """Return the id of the agent that a text mentions first, if it mentions one.

    Where several names fit at one ``@``, the longest is meant; of equal ones a slug, then the name of the agent that is
    first in ``agents``. Upper and lower case, and forms of a letter that Unicode holds for the same, do not matter. An
    e-mail address mentions nobody.
    """
    if not may_mention(content):
        return None
    known = _names(agents)
    lengths = sorted({len(name) for name in known}, reverse=True)
    text = _folded(content)
    found = (_at(text, mark, known, lengths) for mark in _marks(text))
    return next((agent for agent in found if agent is not None), None)


def _names(agents: Sequence[NamedAgent]) -> dict[str, int]:
    known: dict[str, int] = {}
    for agent in agents:
        known.setdefault(agent.slug.lower(), agent.id)
    for agent in agents:
        known.setdefault(_folded(agent.name).strip(), agent.id)
    known.pop("", None)
    return known


def _marks(text: str) -> Iterable[int]:
    at = text.find("@")
    for _ in range(MOST_MARKS):
        if at < 0:
            return
        if _begins(text, at):
            yield at
        at = text.find("@", at + 1)


def _begins(text: str, at: int) -> bool:
    """Say whether a token begins at this ``@``: before it is no word, as in an e-mail address."""
    before = text[at - 1] if at else ""
    joined = before in _LOCAL_PART and at > 1 and _in_word(text[at - 2])
    return not (_in_word(before) or before == "@" or joined)


def _at(text: str, mark: int, known: Mapping[str, int], lengths: Sequence[int]) -> int | None:
    begin = mark + 1
    for length in lengths:
        agent = known.get(text[begin : begin + length])
        if agent is not None and _ends(text, begin + length):
            return agent
    return None


def _ends(text: str, end: int) -> bool:
    after = text[end : end + 1]
    joined = after in _JOINS and _in_word(text[end + 1 : end + 2])
    return not (_in_word(after) or after == "@" or joined)


def _in_word(character: str) -> bool:
    if not character or _UNSPACED.match(character):
        return False
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@dataclass(frozen=True, slots=True)
class RoutableAgent:
    """An active agent, as far as routing looks at it."""

    id: int
    slug: str
    name: str
    role: str = "assistant"


@dataclass(frozen=True)
class RoutingSnapshot:
    """What routing decides by.

    ``agents`` are the active ones, oldest first; those that cannot be chosen may be left out. ``account_agent`` is the
    agent of the account of ours that received the message, ``bound_agent`` that of the channel: ids, of agents that
    need not be active, None where there is none. ``takes_part`` says that the account's agent talks in this thread.
    """

    agents: Sequence[RoutableAgent]
    account_agent: int | None = None
    bound_agent: int | None = None
    takes_part: bool = False
    rules: RoutingSettings = field(default_factory=RoutingSettings)


@dataclass(frozen=True)
class Route:
    """An agent, or nobody; ``reason`` says by which rule."""

    agent: RoutableAgent | None
    reason: str


def route(message: IncomingMessage, snapshot: RoutingSnapshot) -> Route:
    """Pick the agent that should answer.

    First match wins: the agent of our account; the channel's agent; a mention; the conductor in its own channel; the
    agent of a channel of the dashboard; the conductor of direct messages, and of lines that mention our account; the
    fallback agent. Only active agents answer: a rule whose agent is not active gives way to the next. The agent of our
    account answers in groups only what is said to it, and beside it none but the channel's: where several accounts of
    ours hear a line, one of them is meant.
    """
    chosen = next((Route(agent, reason) for agent, reason in _rules(message, snapshot) if agent is not None), None)
    return chosen or Route(None, _nobody(message, snapshot))


def _rules(message: IncomingMessage, snapshot: RoutingSnapshot) -> Iterator[tuple[RoutableAgent | None, str]]:
    """Yield what each rule says, with its reason; a later rule is not looked at before it is its turn."""
    by_id = {agent.id: agent for agent in snapshot.agents}
    conductor = next((agent for agent in snapshot.agents if agent.role == CONDUCTOR), None)
    here = f"{message.address.platform}:{message.address.channel}"
    own = by_id.get(snapshot.account_agent or 0)
    yield own if own is not None and _is_addressed_to(own, message, snapshot) else None, OWN
    yield by_id.get(snapshot.bound_agent or 0), "the channel is bound to the agent"
    if own is not None:
        return
    yield by_id.get(find_mention(message.content, snapshot.agents) or 0), "the message mentions the agent"
    yield (conductor if here in snapshot.rules.conductor_channels else None), "the channel is the conductor's"
    yield by_id.get(dashboard_agent(message.address) or 0), "the channel is the agent's own on the dashboard"
    yield (conductor if message.is_direct else None), "a direct message goes to the conductor"
    yield (conductor if message.addressing is Addressing.US else None), "who mentions the bot means the conductor"
    yield _fallback(snapshot), "no rule names an agent, so the fallback agent answers"


def _is_addressed_to(own: RoutableAgent, message: IncomingMessage, snapshot: RoutingSnapshot) -> bool:
    """Say whether a message that our account received is for the account's own agent."""
    for_it = message.is_direct or message.addressing is not Addressing.NOBODY or snapshot.takes_part
    return for_it or find_mention(message.content, snapshot.agents) == own.id


def dashboard_agent(address: Address) -> int | None:
    """Return the id of the agent to which a channel of the dashboard belongs, by its name."""
    number = address.channel.removeprefix(DASHBOARD_PREFIX)
    named = number != address.channel and number.isascii() and number.isdecimal()
    # Longer numbers are no ids, and too long ones no numbers to a database.
    return int(number) if named and address.platform == DASHBOARD_PLATFORM and len(number) < 19 else None


def _fallback(snapshot: RoutingSnapshot) -> RoutableAgent | None:
    slug = snapshot.rules.fallback_agent
    return next((agent for agent in snapshot.agents if slug and agent.slug == slug), None)


def _nobody(message: IncomingMessage, snapshot: RoutingSnapshot) -> str:
    if any(agent.id == snapshot.account_agent for agent in snapshot.agents):
        return UNMENTIONED
    if snapshot.account_agent is not None or snapshot.bound_agent is not None:
        return "the agent that is meant to answer here is not active, and no other rule names one"
    if message.is_direct:
        return "there is no active conductor"
    return "no agent is bound to the channel and none is mentioned"
