"""Routing: the choice of the agent that answers a message, or why none does (docs/decisions.md: routing)."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from maestro.domain.agents.agent import CONDUCTOR
from maestro.domain.messages import Address, Addressing, IncomingMessage
from maestro.domain.settings.jobs import RoutingSettings

MOST_MARKS = 1_000
"""The most ``@`` signs of a text that are checked for a mention; this limits the time for a text full of them."""
_LOCAL_PART = ".+-%"
"""Punctuation that may occur in an e-mail address before the ``@``."""
_JOINS = "-."
"""Punctuation that joins words to one token: ``@coder-2`` and ``@coder.example`` do not mention ``coder``."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts without blanks between words or before suffixes: a mentioned name may end before one."""

UNMENTIONED = "neither the bot nor its agent is mentioned (requireMention)"


@dataclass(frozen=True, slots=True)
class RoutableAgent:
    """The fields of an active agent that routing needs."""

    id: int
    slug: str
    name: str
    role: str = "assistant"


def may_mention(content: str) -> bool:
    """Return whether a text contains an ``@``, so that it may mention an agent."""
    return re.search("[@\uff20\ufe6b]", content) is not None


def find_mention(content: str, agents: Sequence[RoutableAgent]) -> int | None:
    """Return the id of the first agent that a text mentions, or None.

    If several names match at one ``@``, the longest wins; among equal names a slug wins, then the earlier agent in
    ``agents``. Case and equivalent Unicode forms are ignored. An e-mail address is no mention.
    """
    if not may_mention(content):
        return None
    slugs = [(agent.slug.lower(), agent.id) for agent in agents]
    display_names = [(_fold_case(agent.name).strip(), agent.id) for agent in agents]
    # The names are added in reverse, so that the first agent with a name replaces the later ones.
    names = {name: agent_id for name, agent_id in reversed([*slugs, *display_names]) if name}
    lengths = sorted(set(map(len, names)), reverse=True)
    text = _fold_case(content)
    marks = (mark.start() for mark in islice(re.finditer("@", text), MOST_MARKS))
    mentioned = (_find_agent_at(text, mark + 1, names, lengths) for mark in marks if _may_begin_mention(text, mark))
    return next((agent_id for agent_id in mentioned if agent_id is not None), None)


def _may_begin_mention(text: str, at: int) -> bool:
    """Return whether the ``@`` at a position may begin a mention; after a word, it is part of an e-mail address."""
    before = text[at - 1] if at else ""
    joined = before in _LOCAL_PART and at > 1 and _is_word_character(text[at - 2])
    return not (_is_word_character(before) or before == "@" or joined)


def _find_agent_at(text: str, begin: int, names: Mapping[str, int], lengths: Sequence[int]) -> int | None:
    for length in lengths:
        agent_id = names.get(text[begin : begin + length])
        if agent_id is not None and _may_end_mention(text, begin + length):
            return agent_id
    return None


def _may_end_mention(text: str, end: int) -> bool:
    after = text[end : end + 1]
    joined = after in _JOINS and _is_word_character(text[end + 1 : end + 2])
    return not (_is_word_character(after) or after == "@" or joined)


def _is_word_character(character: str) -> bool:
    if not character or _UNSPACED.match(character):
        return False
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def _fold_case(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@dataclass(frozen=True)
class RoutingSnapshot:
    """The data by which routing chooses the agent for one message.

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


def choose_route(message: IncomingMessage, snapshot: RoutingSnapshot) -> Route:
    """Choose the agent that answers a message.

    The first matching rule wins: the agent of the receiving account; the channel's agent; a mentioned agent; the
    conductor in its own channel; the agent of a dashboard channel; the conductor for direct messages and for messages
    that mention the account; the fallback agent. A rule with an inactive agent is skipped. In a group, the agent of an
    account answers only messages that address the account or the agent. After it, only the channel's binding applies:
    several accounts may receive the same message, and only one should answer.
    """
    for agent, reason in _evaluate_rules(message, snapshot):
        if agent is not None:
            return Route(agent, reason)
    return Route(None, _no_agent_reason(message, snapshot))


def _evaluate_rules(message: IncomingMessage, snapshot: RoutingSnapshot) -> Iterator[tuple[RoutableAgent | None, str]]:
    """Yield the agent and reason of each rule, lazily: a rule is evaluated only if the earlier ones gave no agent."""
    by_id = {agent.id: agent for agent in snapshot.agents}
    conductor = next((agent for agent in snapshot.agents if agent.role == CONDUCTOR), None)
    here = f"{message.address.platform}:{message.address.channel}"
    own = by_id.get(snapshot.account_agent or 0)
    addressed = message.is_direct or message.addressing is not Addressing.NOBODY or snapshot.takes_part
    if own is not None and (addressed or find_mention(message.content, snapshot.agents) == own.id):
        yield own, "all messages of this account are for the agent"
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
    fallback = next((agent for agent in snapshot.agents if agent.slug == snapshot.rules.fallback_agent), None)
    yield fallback, "no rule names an agent, so the fallback agent answers"


def dashboard_agent(address: Address) -> int | None:
    """Return the agent id in the name of a dashboard channel, or None for any other channel."""
    # A number of 19 digits or more may exceed the integers of the database, so it is no agent id.
    match = re.fullmatch("dashboard-agent-([0-9]{1,18})", address.channel)
    return int(match[1]) if match and address.platform == "web" else None


def _no_agent_reason(message: IncomingMessage, snapshot: RoutingSnapshot) -> str:
    if any(agent.id == snapshot.account_agent for agent in snapshot.agents):
        return UNMENTIONED
    if snapshot.account_agent is not None or snapshot.bound_agent is not None:
        return "the agent that is meant to answer here is not active, and no other rule names one"
    if message.is_direct:
        return "there is no active conductor"
    return "no agent is bound to the channel and none is mentioned"
