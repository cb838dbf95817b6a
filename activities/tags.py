"""Acts on the tags of a final answer, one by one, in the transaction that records the answer.

See docs/invariants.md: only the final answer acts.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from ulid import ULID

from activities.context import memory_scope_key
from activities.questions import AskingRules, ask_directives_approval
from maestro.domain.agents.agent import Agent, MemoryScope, Permission, paying_client_id
from maestro.domain.agents.edits import BindingChange, BindingFields, NewBinding
from maestro.domain.conducting.conductor import (
    INCOMPLETE,
    PROTECTED_FIELDS,
    ActionOutcome,
    Requester,
    escape_tags,
    failure_sentence,
    quotation_refusal,
    tag_subject,
)
from maestro.domain.conducting.directives import (
    normalize_slug,
    read_agent_creation,
    read_agent_update,
    read_client_creation,
    read_schedule_creation,
)
from maestro.domain.errors import Forbidden, MaestroError
from maestro.domain.jobs.delegations import MOST_TASKS, DelegatedTask, Delegator, delegation_refusal, tag_problem
from maestro.domain.jobs.flow import AnswerStep
from maestro.domain.jobs.job import Job, JobKind
from maestro.domain.llm.prompts import CallKey, Role, StoredRequest
from maestro.domain.memory.memory import FactCategory, read_fact
from maestro.domain.messages import Address
from maestro.domain.people.people import access_refusal as may_not_talk
from maestro.domain.precedence import Priority
from maestro.domain.questions.question import Question
from maestro.domain.redaction import Redact, keep_text
from maestro.domain.schedules.expressions import SHORTEST
from maestro.domain.schedules.schedule import Cron, Heartbeat, ScheduleColumns
from maestro.domain.tags.actions import KEPT_AS, ActionState, is_quotation, normalize_texts
from maestro.domain.tags.grammar import CONDUCTOR_TAGS, Tag, TagName
from maestro.store.transaction import Transaction, run_in_savepoint


@dataclass(frozen=True)
class ActingRules:
    """Settings for acting on tags; ``memory_scope`` applies to agents without a memory scope of their own.

    ``may_conduct`` names the users (``platform:userId``), besides owners, for whom a conductor acts. ``redact`` removes
    secrets from facts; ``shortest`` is the shortest interval of a schedule. ``asking`` has the rules for approving
    directives of a conductor that read text from outside; if None, they need no approval.
    """

    memory_scope: MemoryScope
    may_conduct: frozenset[str]
    redact: Redact = keep_text
    shortest: timedelta = SHORTEST
    asking: AskingRules | None = None


@dataclass
class TagOutcomes:
    """The results of the tags of an answer: outcomes in order, texts for the user, and delegated tasks."""

    outcomes: list[tuple[Tag, ActionOutcome]] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    tasks: list[tuple[DelegatedTask, Job]] = field(default_factory=list)


class TagRun:
    """Acts on the tags of one answer in one transaction."""

    def __init__(self, tx: Transaction, job: Job, rules: ActingRules) -> None:
        self._tx = tx
        self._job = job
        self._agent = tx.agents.get(job.agent_id)
        self._person = tx.inbox.read_sender(job.inbox_id)  # The run of a schedule has no user.
        name = str(self._person.id) if self._person is not None else ""
        self._by = Requester(
            agent=self._agent,
            person=name,
            is_owner=self._person is not None and self._person.is_owner,
            allowed=name in rules.may_conduct,
            address=job.address,
            job_id=job.id,
            shortest=rules.shortest,
        )
        self._scope = memory_scope_key(tx, job, self._agent, rules.memory_scope)
        self._asking = rules.asking
        self._results = TagOutcomes()

    def ask_approval(self, step: AnswerStep, tags: Sequence[Tag]) -> Question | None:
        """Return the question whether a conductor may act on these tags; None if no approval is needed.

        Approval is needed if text from outside was read for this answer, or for an earlier answer that contains one of
        the directives. One question covers all directives of an answer.
        """
        directives = [tag for tag in tags if tag.name in CONDUCTOR_TAGS and tag.complete and not tag.quoted]
        if not directives or self._asking is None or self._by.refusal:
            return None
        if not (find_outside_tools(self._tx, self._job) or repeats_directive(self._tx, step, directives)):
            return None
        question = ask_directives_approval(self._tx, self._job, step, directives, self._asking)
        self._by = replace(self._by, approval=question.status)
        return question

    def act_on_all(self, tags: Sequence[Tag]) -> TagOutcomes:
        """Act on each tag in order, and store each outcome."""
        for tag in tags:
            outcome = self._act_on(tag)
            self._results.outcomes.append((tag, outcome))
            if is_visible_to_user(tag, outcome):
                self._results.reports.append(outcome.detail)
        self._tx.jobs.actions.add_outcomes(self._job.id, self._results.outcomes)
        return self._results

    def _act_on(self, tag: Tag) -> ActionOutcome:
        if tag.quoted:
            self._tx.system.audit.add_entry(self._by.actor, "answer.quotation", tag.name.lower(), self._job.id)
            return ActionOutcome(ActionState.REFUSED, quotation_refusal(tag), tag.key)
        if tag.name is TagName.MEMORY:
            return self._store_facts(tag)
        if tag.name is TagName.STATE:
            problem: str | None = f"{tag.key!r} is not a valid key: write one word."
            if tag.complete:
                problem = self._tx.memory.set_state(self._job.agent_id or 0, tag.key, tag.body, self._scope)
            return ActionOutcome(ActionState.FAILED if problem else ActionState.DONE, problem or "noted", tag.key)
        if tag.name is TagName.DELEGATE:
            return self._delegate_task(tag)
        return perform_directive(self._tx, tag, self._by)

    def _store_facts(self, tag: Tag) -> ActionOutcome:
        fact = read_fact(tag)
        if isinstance(fact, str):
            return ActionOutcome(ActionState.FAILED, fact, tag.key)
        new = self._tx.memory.learn_facts(
            self._job.agent_id or 0, [fact], conversation_id=self._job.conversation_id, memory_scope=self._scope
        )
        detail = "remembered" if new else "known already"
        if fact.category != tag.key.casefold().replace("-", "_"):
            detail = f"{KEPT_AS}{fact.category}: {tag.key!r} is no category; write one of {', '.join(FactCategory)}."
        return ActionOutcome(ActionState.DONE, detail, fact.category)

    def _delegate_task(self, tag: Tag) -> ActionOutcome:
        task = DelegatedTask.from_tag(tag)
        target = self._tx.agents.find_agent_by_slug(task.slug)
        problem = tag_problem(task, tag) or self._find_delegation_problem(task, target)
        if problem is not None:
            return ActionOutcome(ActionState.REFUSED, problem, task.slug)
        assert target is not None  # A task for an unknown agent was refused above.
        by = self._job
        task_job = self._tx.jobs.add(
            Job(
                id=f"{JobKind.DELEGATION}-{ULID()}",
                kind=JobKind.DELEGATION,
                # A task has at most the priority of the job that delegates (docs/decisions.md: priorities).
                priority=max(Priority.DELEGATION, by.priority),
                inbox_id=by.inbox_id,
                agent_id=target.id,
                client_id=paying_client_id(target, self._tx.agents.find_binding(by.address)),
                conversation_id=by.conversation_id,
                parent_id=by.id,
                depth=by.depth + 1,
                task=task.task,
                hears=task.hears,
                created_at=self._tx.now,
                **by.address.model_dump(),
            )
        )
        self._results.tasks.append((task, task_job))
        return ActionOutcome(ActionState.DONE, "passed on", task.slug)

    def _find_delegation_problem(self, task: DelegatedTask, target: Agent | None) -> str | None:
        """Return why a task is refused, or None; the asking user must have access to the agent that gets the task.

        See docs/decisions.md: access.
        """
        start = f"The task was not passed on to @{task.slug}:"
        if len(self._results.tasks) >= MOST_TASKS:
            return f"{start} one answer may pass on {MOST_TASKS} tasks at most."
        lineage = self._tx.jobs.delegations.read_lineage(self._job)
        agents = {job.agent_id for job in lineage if job.agent_id is not None}
        problem = delegation_refusal(task, target, Delegator(self._agent, self._job.depth, agents))
        if problem or target is None:
            return problem
        if self._person is None:  # The run of a schedule has no user, so an agent with an allow-list refuses its tasks.
            return f"{start} only some people may talk to that agent." if target.allow_users is not None else None
        if may_not_talk(self._person, target) is None:
            return None
        return f"{start} the asking user may not talk to that agent."


def is_visible_to_user(tag: Tag, outcome: ActionOutcome) -> bool:
    """Return whether the user gets a report of a tag's outcome: for directives, refused tasks and quoted tags."""
    if tag.quoted or tag.name not in (TagName.MEMORY, TagName.STATE, TagName.DELEGATE):
        return True
    return tag.name is TagName.DELEGATE and outcome.state is not ActionState.DONE


def find_outside_tools(tx: Transaction, job: Job) -> Collection[str]:
    """Return the tools that brought text from outside into a job, or into a job related to it by delegation."""
    first = tx.jobs.delegations.read_lineage(job)[-1]
    return tx.jobs.tool_runs.filter_with_outside_text(
        [first.id, *(task.id for task in tx.jobs.delegations.list_descendants([first.id]))]
    )


def repeats_directive(tx: Transaction, step: AnswerStep, tags: Sequence[Tag]) -> bool:
    """Return whether an earlier answer has one of these directives, and text from outside was read for that answer."""
    call = tx.llm.calls.get_answer(CallKey(job_id=step.job_id, number=step.number))
    turns = StoredRequest.model_validate_json(tx.llm.prompts.read_text(call.request)).turns
    own = [turn for turn in turns if turn.role is Role.ASSISTANT and turn.message_id is not None]
    for turn, answer in zip(own, tx.llm.prompts.restore_messages(own), strict=True):
        source = normalize_texts([answer.content])
        if any(is_quotation(tag, source) for tag in tags):
            job = tx.jobs.read(tx.conversations.read_message(turn.message_id).job_id)
            if find_outside_tools(tx, job):
                return True
    return False


def perform_directive(tx: Transaction, tag: Tag, requester: Requester) -> ActionOutcome:
    """Perform a conductor's directive, and return its outcome.

    Only a conductor's own text acts, and only for an owner or a user named in the settings (docs/decisions.md: access).
    A failed directive is rolled back. Each directive sees the effects of the tags before it.
    """
    reason = requester.refusal or ("" if tag.complete else INCOMPLETE)
    if reason:
        state = ActionState.REFUSED if requester.refusal else ActionState.FAILED
        return _refused_outcome(tx, tag, requester, state, reason)
    done = run_in_savepoint(tx, lambda: _DIRECTIVES[tag.name](tx, tag, requester))
    if isinstance(done, MaestroError):
        state = ActionState.REFUSED if isinstance(done, Forbidden) else ActionState.FAILED
        return _refused_outcome(tx, tag, requester, state, str(done))
    return replace(done, detail=escape_tags(done.detail))


def _refused_outcome(tx: Transaction, tag: Tag, requester: Requester, state: ActionState, reason: str) -> ActionOutcome:
    tx.system.audit.add_entry(requester.actor, f"conductor.{state}", tag.name.lower(), requester.job_id)
    return ActionOutcome(state, escape_tags(failure_sentence(tag, reason)), tag_subject(tag))


def _create_agent(tx: Transaction, tag: Tag, requester: Requester) -> ActionOutcome:
    new, channels = read_agent_creation(tag, requester.address)
    agent = tx.agents.create(new, requester.actor, requester.reason)
    for channel in channels:
        tx.agents.bind_channel(agent, channel, requester.actor)
    text = f"The agent @{agent.slug} was created{_channels_text(channels)}."
    return ActionOutcome(ActionState.DONE, text, agent.slug)


def _update_agent(tx: Transaction, tag: Tag, requester: Requester) -> ActionOutcome:
    change, channels = read_agent_update(tag, requester.address)
    agent = tx.agents.get_agent_by_slug(normalize_slug(tag.key))
    if agent.id == requester.agent.id and change.given_fields & PROTECTED_FIELDS:
        raise Forbidden("a conductor does not change its own role or status; an operator can")
    before = tx.agents.read_fields(agent)
    tx.agents.change(agent, change, requester.actor, requester.reason)
    for channel in channels:
        _bind_channel(tx, agent, channel, requester)
    after = tx.agents.read_fields(agent)
    different = [name for name in sorted(change.given_fields) if getattr(before, name) != getattr(after, name)]
    if not different and not channels:
        tx.system.audit.add_entry(requester.actor, "agent.same", agent.slug, requester.job_id)
        return ActionOutcome(ActionState.DONE, f"The agent @{agent.slug} has these settings already.", agent.slug)
    changed = ", ".join(different) or "its channels"
    text = f"The agent @{agent.slug} was changed: {changed}{_channels_text(channels)}."
    return ActionOutcome(ActionState.DONE, text, agent.slug)


def _bind_channel(tx: Transaction, agent: Agent, new: NewBinding, requester: Requester) -> None:
    """Bind a channel to the agent; an existing binding to the same agent is changed instead."""
    binding = tx.agents.find_binding(Address(platform=new.platform, account=new.account, channel=new.channel))
    if binding is None or binding.agent_id != agent.id:
        tx.agents.bind_channel(agent, new, requester.actor)
        return
    fields = new.model_fields_set & BindingFields.model_fields.keys()
    if fields:
        change = BindingChange.model_validate({name: getattr(new, name) for name in fields})
        tx.agents.change_binding(binding, change, requester.actor)


def _channels_text(channels: tuple[NewBinding, ...]) -> str:
    names: dict[bool, list[str]] = {True: [], False: []}
    for channel in channels:
        names[channel.permission is Permission.FULL].append(f"{channel.channel} on {channel.platform}")
    answering, silent = " and ".join(names[True]), " and ".join(names[False])
    text = f", and answers in {answering}" if answering else ""
    return text + (f", and is bound, without answering there, in {silent}" if silent else "")


def _create_schedule(tx: Transaction, tag: Tag, requester: Requester) -> ActionOutcome:
    kind: type[ScheduleColumns] = Cron if tag.name is TagName.CREATE_CRON else Heartbeat
    creation = read_schedule_creation(tag, requester.address)
    schedule = tx.background.schedules.add_schedule(kind, creation, requester.actor, requester.shortest)
    view = tx.background.schedules.build_schedule_view(schedule)
    next_run = "No further run follows." if view.enabled else "The schedule is not active yet."
    if view.next_run is not None:
        next_run = f"The next run is on {view.next_run:%A %Y-%m-%d at %H:%M}; the schedule is called {view.ref}."
    detail = (
        f"The {kind.__name__.lower()} “{schedule.name}” of @{creation.agent} was saved: {schedule.schedule} "
        f"({schedule.zone}). {next_run}"
    )
    return ActionOutcome(ActionState.DONE, detail, f"{creation.agent}/{schedule.name}")


def _create_client(tx: Transaction, tag: Tag, requester: Requester) -> ActionOutcome:
    client = tx.users.clients.create_client(read_client_creation(tag), requester.actor)
    return ActionOutcome(ActionState.DONE, f"The client “{client.name}” was created.", client.name)


_DIRECTIVES: Mapping[TagName, Callable[[Transaction, Tag, Requester], ActionOutcome]] = {
    TagName.CREATE_AGENT: _create_agent,
    TagName.UPDATE_AGENT: _update_agent,
    TagName.CREATE_CRON: _create_schedule,
    TagName.CREATE_HEARTBEAT: _create_schedule,
    TagName.CREATE_CLIENT: _create_client,
}
