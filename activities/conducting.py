"""What a conductor's tags do: each wish is done whole or leaves nothing behind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from maestro.domain.agents.agent import Agent, Permission
from maestro.domain.agents.edits import BindingChange, BindingFields, NewBinding
from maestro.domain.conducting.conductor import (
    INCOMPLETE,
    OWN_STANDING,
    Performed,
    Requester,
    sentence,
    subject_of,
    without_tags,
)
from maestro.domain.conducting.wishes import agent_wish, change_wish, client_wish, schedule_wish
from maestro.domain.errors import Forbidden, MaestroError
from maestro.domain.messages import Address
from maestro.domain.schedules.schedule import Cron, Heartbeat, Planned
from maestro.domain.schedules.views import ScheduleView
from maestro.domain.tags.actions import ActionState
from maestro.domain.tags.grammar import Tag, TagName
from maestro.store.transaction import Transaction


def perform(tx: Transaction, tag: Tag, by: Requester) -> Performed:
    """Do what one of a conductor's tags asks for, and say what came of it.

    Only what a conductor writes is acted on, and only for an owner or a person whom the settings name
    (docs/decisions.md: access). What cannot be done leaves nothing behind; a later tag of the same answer finds what an
    earlier one made.
    """
    reason = by.refusal or ("" if tag.complete else INCOMPLETE)
    if reason:
        return _not_done(tx, tag, by, ActionState.REFUSED if by.refusal else ActionState.FAILED, reason)
    done = tx.attempt(lambda: _WISHES[tag.name](tx, tag, by))
    if isinstance(done, MaestroError):
        state = ActionState.REFUSED if isinstance(done, Forbidden) else ActionState.FAILED
        return _not_done(tx, tag, by, state, str(done))
    return replace(done, detail=without_tags(done.detail))


def _not_done(tx: Transaction, tag: Tag, by: Requester, state: ActionState, reason: str) -> Performed:
    tx.audit.add(by.actor, f"conductor.{state}", tag.name.lower(), by.job_id)
    return Performed(state, without_tags(sentence(tag, reason)), subject_of(tag))


def _create_agent(tx: Transaction, tag: Tag, by: Requester) -> Performed:
    wish = agent_wish(tag, by.address)
    agent = tx.agents.create(wish.agent, by.actor, by.reason)
    for channel in wish.channels:
        tx.agents.bind_channel(agent, channel, by.actor)
    return Performed(ActionState.DONE, f"The agent @{agent.slug} was created{_bound(wish.channels)}.", agent.slug)


def _update_agent(tx: Transaction, tag: Tag, by: Requester) -> Performed:
    wish = change_wish(tag, by.address)
    agent = tx.agents.named(wish.slug)
    if agent.id == by.agent.id and wish.change.given & OWN_STANDING:
        raise Forbidden("a conductor does not change its own role or status; an operator can")
    before = tx.agents.fields(agent)
    tx.agents.change(agent, wish.change, by.actor, by.reason)
    for channel in wish.channels:
        _bind(tx, agent, channel, by)
    after = tx.agents.fields(agent)
    different = [name for name in sorted(wish.change.given) if getattr(before, name) != getattr(after, name)]
    if not different and not wish.channels:
        tx.audit.add(by.actor, "agent.same", agent.slug, by.job_id)
        return Performed(ActionState.DONE, f"The agent @{agent.slug} is like that already.", agent.slug)
    changed = ", ".join(different) or "its channels"
    return Performed(
        ActionState.DONE, f"The agent @{agent.slug} was changed: {changed}{_bound(wish.channels)}.", agent.slug
    )


def _bind(tx: Transaction, agent: Agent, new: NewBinding, by: Requester) -> None:
    """Bind a channel, or change how it is bound to this agent already."""
    binding = tx.agents.binding(Address(platform=new.platform, account=new.account, channel=new.channel))
    if binding is None or binding.agent_id != agent.id:
        tx.agents.bind_channel(agent, new, by.actor)
        return
    given = new.model_fields_set & BindingFields.model_fields.keys()
    if given:
        change = BindingChange.model_validate({name: getattr(new, name) for name in given})
        tx.agents.change_binding(binding, change, by.actor)


def _bound(channels: tuple[NewBinding, ...]) -> str:
    answering = [where for where in channels if where.permission is Permission.FULL]
    silent = [where for where in channels if where.permission is not Permission.FULL]
    heard = f", and answers in {_places(answering)}" if answering else ""
    return heard + (f", and has, without being talked to there, {_places(silent)}" if silent else "")


def _places(channels: Sequence[NewBinding]) -> str:
    return " and ".join(f"{channel.channel} on {channel.platform}" for channel in channels)


def _create_schedule(tx: Transaction, tag: Tag, by: Requester) -> Performed:
    kind: type[Planned] = Cron if tag.name is TagName.CREATE_CRON else Heartbeat
    wish = schedule_wish(tag, by.address)
    planned = tx.schedules.add(kind, wish, by.actor, by.shortest)
    view = tx.schedules.view(planned)
    detail = (
        f"The {kind.__name__.lower()} “{planned.name}” of @{wish.agent} was saved: {planned.schedule} "
        f"({planned.zone}). {_next(view)}"
    )
    return Performed(ActionState.DONE, detail, f"{wish.agent}/{planned.name}")


def _next(view: ScheduleView) -> str:
    """Say when a schedule comes first; the zone stands before it."""
    if view.next_run is None:
        return "It does not run yet." if not view.enabled else "It does not come any more."
    return f"It runs next on {view.next_run:%A %Y-%m-%d at %H:%M}, and is called {view.ref}."


def _create_client(tx: Transaction, tag: Tag, by: Requester) -> Performed:
    client = tx.clients.create(client_wish(tag), by.actor)
    return Performed(ActionState.DONE, f"The client “{client.name}” was created.", client.name)


_WISHES: Mapping[TagName, Callable[[Transaction, Tag, Requester], Performed]] = {
    TagName.CREATE_AGENT: _create_agent,
    TagName.UPDATE_AGENT: _update_agent,
    TagName.CREATE_CRON: _create_schedule,
    TagName.CREATE_HEARTBEAT: _create_schedule,
    TagName.CREATE_CLIENT: _create_client,
}
