"""Routing: choose the agent that answers a message, by mentions, bindings and rules, or give the reason why none does.

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
"""The most ``@`` of a text that are checked, so that a text full of them costs little."""
_MARK = re.compile("[@\uff20\ufe6b]")
_LOCAL_PART = ".+-%"
"""Punctuation that may occur in an e-mail address before the ``@``."""
_JOINS = "-."
"""Punctuation that joins words to one token: ``@coder-2`` and ``@coder.example`` do not mention ``coder``."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts without blanks between words or before suffixes: they end a token."""

DASHBOARD_PREFIX = "dashboard-agent-"
DASHBOARD_PLATFORM = "web"
OWN = "all messages of this account are for the agent"
UNMENTIONED = "neither the bot nor its agent is mentioned (requireMention)"


class NamedAgent(Protocol):
    """An agent with the names by which a message can mention it."""

    @property
    def id(self) -> int:
        """The agent's id."""
        ...

    @property
    def slug(self) -> str:
        """The agent's slug."""
        ...

    @property
    def name(self) -> str:
        """The agent's display name."""
        ...


def may_mention(content: str) -> bool:
    """Say whether a text contains an ``@``, so that it may mention an agent."""
    return _MARK.search(content) is not None


def find_mention(content: str, agents: Sequence[NamedAgent]) -> int | None:
    """Return the id of the first agent that a text mentions, or None.

    If several names match at one ``@``, the longest wins; among equal names a slug wins, then the earlier agent in
    ``agents``. Case and equivalent Unicode forms are ignored. An e-mail address is no mention.
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
        if _may_begin_mention(text, at):
            yield at
        at = text.find("@", at + 1)


def _may_begin_mention(text: str, at: int) -> bool:
    """Say whether a mention may begin at this ``@``: it does not follow a word, as it does in an e-mail address."""
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
    """The fields of an active agent that routing needs."""

    id: int
    slug: str
    name: str
    role: str = "assistant"


@dataclass(frozen=True)
class RoutingSnapshot:
    """The data on which routing decides.

    ``agents`` are the active agents, oldest first; agents that cannot be chosen may be missing. ``account_agent`` is
    the id of the agent assigned to the receiving account, ``bound_agent`` that of the channel's binding; both may name
    an inactive agent and are None if there is none. ``takes_part`` says that the account's agent already takes part in
    this thread.
    """

    agents: Sequence[RoutableAgent]
    account_agent: int | None = None
    bound_agent: int | None = None
    takes_part: bool = False
    rules: RoutingSettings = field(default_factory=RoutingSettings)


@dataclass(frozen=True)
class Route:
    """The result of routing: an agent or None, and the rule that decided as ``reason``."""

    agent: RoutableAgent | None
    reason: str


def route(message: IncomingMessage, snapshot: RoutingSnapshot) -> Route:
    """Choose the agent that answers a message.

    The first matching rule wins: the agent of the receiving account; the channel's agent; a mentioned agent; the
    conductor in its own channel; the agent of a dashboard channel; the conductor for direct messages and for messages
    that mention the account; the fallback agent. A rule with an inactive agent is skipped. In groups, an account's
    agent answers only messages addressed to it; for such an account no later rule applies except the channel's binding,
    because several accounts may receive the same message and only one should answer.
    """
    chosen = next(
        (Route(agent, reason) for agent, reason in _rule_results(message, snapshot) if agent is not None), None
    )
    return chosen or Route(None, _no_agent_reason(message, snapshot))


def _rule_results(message: IncomingMessage, snapshot: RoutingSnapshot) -> Iterator[tuple[RoutableAgent | None, str]]:
    """Yield the agent and reason of each rule, lazily: a rule is evaluated only if the earlier ones gave no agent."""
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
    yield (
        (conductor if message.addressing is Addressing.US else None),
        "a message that mentions the bot goes to the conductor",
    )
    yield _fallback(snapshot), "no rule names an agent, so the fallback agent answers"


def _is_addressed_to(own: RoutableAgent, message: IncomingMessage, snapshot: RoutingSnapshot) -> bool:
    """Say whether a message that an account received is addressed to the account's own agent."""
    for_it = message.is_direct or message.addressing is not Addressing.NOBODY or snapshot.takes_part
    return for_it or find_mention(message.content, snapshot.agents) == own.id


def dashboard_agent(address: Address) -> int | None:
    """Return the agent id in the name of a dashboard channel, or None for any other channel."""
    number = address.channel.removeprefix(DASHBOARD_PREFIX)
    named = number != address.channel and number.isascii() and number.isdecimal()
    # 19 digits or more may exceed the integers of the database.
    return int(number) if named and address.platform == DASHBOARD_PLATFORM and len(number) < 19 else None


def _fallback(snapshot: RoutingSnapshot) -> RoutableAgent | None:
    slug = snapshot.rules.fallback_agent
    return next((agent for agent in snapshot.agents if slug and agent.slug == slug), None)


def _no_agent_reason(message: IncomingMessage, snapshot: RoutingSnapshot) -> str:
    if any(agent.id == snapshot.account_agent for agent in snapshot.agents):
        return UNMENTIONED
    if snapshot.account_agent is not None or snapshot.bound_agent is not None:
        return "the agent that is meant to answer here is not active, and no other rule names one"
    if message.is_direct:
        return "there is no active conductor"
    return "no agent is bound to the channel and none is mentioned"
