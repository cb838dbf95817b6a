"""Writes clients, agents and bindings of the configuration into the store."""

import hashlib
import json

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.agents.edits import AgentChange, NewAgent, NewBinding
from maestro.domain.conducting.teaching import with_prompt
from maestro.domain.errors import ConfigurationError, InvalidEdit
from maestro.domain.fields import read
from maestro.domain.llm.clients import NewClient
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.settings import AgentSettings, ChannelSettings, ClientSettings, Settings
from maestro.settings.bots import ConfiguredBot, configured_bots
from maestro.store.transaction import Transaction

CONFIGURATION = "configuration"
"""Who the history of an agent says has made what its entry in the configuration asks for."""


def enter_clients(tx: Transaction, settings: tuple[ClientSettings, ...]) -> None:
    """Enter the configured clients; one that is gone stays, because its usage does, without a budget of its own.

    Raises ``Conflict`` when a slug is that of a client that was made in another way.
    """
    for client in settings:
        tx.users.clients.enter(NewClient.model_validate(client.model_dump(by_alias=False)))
    tx.users.clients.leave_out({client.name for client in settings})


def require_client(tx: Transaction, name: str, where: str) -> None:
    """Make sure that there is a client of this name or slug, if one is named; raises ``ConfigurationError``."""
    try:
        tx.users.clients.id_of(name)
    except InvalidEdit:
        raise ConfigurationError(
            f"{where} names the client {name!r}, which does not exist. Add it to clients, or correct the name."
        ) from None


def enter(tx: Transaction, settings: Settings) -> None:
    """Make the store say what the configuration says; what it once said and no longer does is taken back.

    An agent that is gone from it is archived, because its conversations stay; a binding is deleted. What was made in
    another way is not touched.
    """
    enter_clients(tx, settings.clients)
    for agent in tx.agents.all():
        tx.agents.begin_history(agent)
    for entry in settings.agents:
        _enter_agent(tx, entry)
    _archive_gone(tx, {entry.slug for entry in settings.agents})
    kept = {_bind(tx, binding) for binding in settings.channels}
    for former in tx.agents.bindings():
        if former.configured and former.id not in kept:
            tx.agents.unbind(former)
    own = _present(tx, settings.web.agent, "web.agent names") if settings.web.agent else None
    tx.agents.enter_instance("web", DEFAULT_ACCOUNT, own)
    tx.bots.keep_configured({(bot.platform, bot.account): _agent_of(tx, bot) for bot in configured_bots(settings)})


def _agent_of(tx: Transaction, bot: ConfiguredBot) -> int | None:
    """Return the id of the agent that answers all that is said to a bot, if the configuration names one."""
    return _present(tx, bot.agent, f"the connector {bot.platform}/{bot.account} names").id if bot.agent else None


def _enter_agent(tx: Transaction, settings: AgentSettings) -> None:
    """Enter an agent when its entry is new, back, or not what it was: else edits made elsewhere since then hold."""
    require_client(tx, settings.client, f"agents: {settings.slug}")
    entry = _digest(settings)
    agent = tx.agents.by_slug(settings.slug)
    if agent is not None and agent.configured and agent.entry == entry:
        return
    said = {**settings.model_dump(by_alias=False), "name": settings.display_name}
    new = read(NewAgent, said)
    if agent is None:
        agent = tx.agents.create(new, CONFIGURATION)
    else:
        wanted = with_prompt(new).model_dump(by_alias=False, exclude={"slug", "status"})
        # An agent that was paused by an operator stays paused while it is configured.
        status = {} if agent.configured else {"status": AgentStatus.ACTIVE}
        tx.agents.change(agent, read(AgentChange, {**wanted, **status, "force": True}), CONFIGURATION)
    agent.configured, agent.entry = True, entry
    tx.agents.put(agent)


def _archive_gone(tx: Transaction, named: set[str]) -> None:
    archived = AgentChange(status=AgentStatus.ARCHIVED, force=True)
    for gone in tx.agents.all():
        if gone.configured and gone.slug not in named:
            tx.agents.change(gone, archived, CONFIGURATION, "the configuration no longer names it")
            gone.configured, gone.entry = False, ""
            tx.agents.put(gone)


def _digest(settings: AgentSettings) -> str:
    """Return what tells one entry from another; a default that a later release changes is no change of the entry."""
    written = settings.model_dump(mode="json", by_alias=False, exclude_unset=True)
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


def _bind(tx: Transaction, settings: ChannelSettings) -> int | None:
    """Enter a binding and return its id; None while its agent is archived."""
    where = f"channels: {settings.platform}/{settings.channel}"
    agent = _present(tx, settings.agent, f"{where} is bound to")
    require_client(tx, settings.client, where)
    if agent.status is AgentStatus.ARCHIVED:
        return None
    said = settings.model_dump(by_alias=False, exclude={"agent", "permissions"})
    return tx.agents.enter_binding(agent, read(NewBinding, {**said, "permission": settings.permissions})).id


def _present(tx: Transaction, slug: str, who: str) -> Agent:
    """Return an agent that the configuration speaks of; raises ``ConfigurationError`` when there is none."""
    agent = tx.agents.by_slug(slug)
    if agent is None or (agent.status is AgentStatus.ARCHIVED and not agent.configured):
        raise ConfigurationError(
            f"{who} the agent {slug!r}, which does not exist. Add it to agents, or correct the slug."
        )
    return agent
