"""A transaction and the repositories that work inside it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from maestro.domain.errors import Conflict, Forbidden, InvalidEdit, MaestroError, NotFound
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs.busy import INTERRUPTED, interrupted
from maestro.domain.jobs.job import Ending, Job, JobStatus
from maestro.domain.messages import LaneKey
from maestro.domain.questions.question import Answer
from maestro.store.accounts import Accounts
from maestro.store.actions import Actions
from maestro.store.agent_edits import AgentEdits
from maestro.store.audit import Audit
from maestro.store.browse import Browse
from maestro.store.budgets import Budgets
from maestro.store.calls import Calls
from maestro.store.clients import Clients
from maestro.store.colleagues import Colleagues
from maestro.store.compactions import Compactions
from maestro.store.conversation_lists import ConversationLists
from maestro.store.conversations import Conversations
from maestro.store.delegations import Delegations
from maestro.store.deliveries import Deliveries
from maestro.store.figures import Figures
from maestro.store.ignored import Ignored
from maestro.store.inbox import Inbox
from maestro.store.jobs import Jobs
from maestro.store.media import Media
from maestro.store.memory import Memory
from maestro.store.memory_edits import MemoryEdits
from maestro.store.merges import Merges
from maestro.store.owners import Owners
from maestro.store.pairing import Pairings
from maestro.store.people import People
from maestro.store.prompts import Prompts
from maestro.store.questions import Questions
from maestro.store.removals import Removals
from maestro.store.repository import Link
from maestro.store.requests import Requests
from maestro.store.routes import Routes
from maestro.store.schedules import Schedules
from maestro.store.skills import Skills
from maestro.store.steps import Steps
from maestro.store.tool_runs import ToolRuns
from maestro.store.usage import UsageLog
from maestro.store.versions import AgentVersions

Done = TypeVar("Done")


class Transaction:
    """One transaction; ``now`` is the same for everything in it."""

    def __init__(self, link: Link, now: datetime) -> None:
        self.now = now
        self._link = link

    def close_job(self, job_id: str, ending: Ending) -> bool:
        """End a job, free its places, inbound and outbound, and ask nobody for it any more; false when it had ended.

        The tasks it gave to other agents may begin if it was answered, and who waits to hear of it may go on.
        """
        self.questions.cancel_of(job_id)
        self.calls.close(job_id)
        self.deliveries.abandon(job_id)
        self.deliveries.leave_lanes(job_id)
        ended = self.jobs.end(job_id, ending)
        if ended:
            self.delegations.closed(job_id, ending.status)
        return ended

    def answer(self, answer: Answer, by: str, inbox_id: int | None = None) -> bool:
        """Keep what a person, ``platform:userId`` or the operator, says to a question, and let its job go on.

        ``inbox_id`` is the message that says it. Returns false, and changes nothing, when the question is not open.
        """
        kept = self.questions.settle(answer, by, inbox_id)
        if kept:
            self.jobs.wake(answer.question.job_id)
            self.audit.add(by, answer.action, str(answer.question.id))
        return kept

    def interrupt(self, newer: Job, row: InboxRow, agent_id: int | None, user_id: str | None = None) -> None:
        """Let a newer message, which ``agent_id`` would answer, end what that agent does for the same person.

        It is answered in the turn of the newer one (decision 15). What runs stops at its next step; a chunk that is
        being sent is sent. A person who knows that they have to wait is not told again. What came before a ``/new``,
        that of ``user_id`` alone if one is given, is another conversation and goes on.
        """
        for one in interrupted(row, agent_id, self.merges.open_in(LaneKey(newer.lane or ""))):
            if self.inbox.next_new_conversation(one.row, user_id) is not None:
                continue
            self.jobs.update(one.job.id, merged_into=newer.id)
            if one.job.status is JobStatus.RUNNING:
                self.jobs.request_stop(one.job.id)
            else:
                self.close_job(one.job.id, Ending(status=JobStatus.CANCELLED, reason=INTERRUPTED))
            newer.told_to_wait = newer.told_to_wait or one.job.told_to_wait

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Take back what the block did, and only that, when it raises."""
        session = self._link.session
        session.flush()
        with session.begin_nested():
            yield
            session.flush()

    def attempt(self, wish: Callable[[], Done]) -> Done | MaestroError:
        """Do something, or nothing of it: return instead the error that says what does not fit and how to mend it."""
        try:
            with self.savepoint():
                return wish()
        except (Conflict, Forbidden, InvalidEdit, NotFound) as error:
            return error

    @cached_property
    def inbox(self) -> Inbox:
        """Received messages."""
        return Inbox(self._link, self.now)

    @cached_property
    def jobs(self) -> Jobs:
        """Jobs and their places in lanes."""
        return Jobs(self._link, self.now)

    @cached_property
    def steps(self) -> Steps:
        """The journal of every job's steps."""
        return Steps(self._link, self.now)

    @cached_property
    def agents(self) -> AgentEdits:
        """Agents and their channels."""
        return AgentEdits(self._link, self.now)

    @cached_property
    def clients(self) -> Clients:
        """Who pays."""
        return Clients(self._link, self.now)

    @cached_property
    def conversations(self) -> Conversations:
        """Conversations and messages."""
        return Conversations(self._link, self.now)

    @cached_property
    def merges(self) -> Merges:
        """Messages that are answered together."""
        return Merges(self._link, self.now)

    @cached_property
    def conversation_lists(self) -> ConversationLists:
        """Conversations and what was said in them, for people."""
        return ConversationLists(self._link, self.now)

    @cached_property
    def removals(self) -> Removals:
        """What is deleted for good."""
        return Removals(self._link, self.now)

    @cached_property
    def media(self) -> Media:
        """Files that came with messages."""
        return Media(self._link, self.now)

    @cached_property
    def memory(self) -> Memory:
        """What agents remember."""
        return Memory(self._link, self.now)

    @cached_property
    def memory_edits(self) -> MemoryEdits:
        """What agents remember, for operators."""
        return MemoryEdits(self._link, self.now)

    @cached_property
    def compactions(self) -> Compactions:
        """What compactions took away and left behind."""
        return Compactions(self._link, self.now)

    @cached_property
    def prompts(self) -> Prompts:
        """Prompts as references, and their parts."""
        return Prompts(self._link, self.now)

    @cached_property
    def calls(self) -> Calls:
        """Model calls."""
        return Calls(self._link, self.now)

    @cached_property
    def deliveries(self) -> Deliveries:
        """What goes out."""
        return Deliveries(self._link, self.now)

    @cached_property
    def people(self) -> People:
        """Tickets, channels and uploads of the web connector."""
        return People(self._link, self.now)

    @cached_property
    def owners(self) -> Owners:
        """Whose word always counts."""
        return Owners(self._link, self.now)

    @cached_property
    def audit(self) -> Audit:
        """Who did what."""
        return Audit(self._link, self.now)

    @cached_property
    def browse(self) -> Browse:
        """What operators look at."""
        return Browse(self._link, self.now)

    @cached_property
    def figures(self) -> Figures:
        """What monitoring counts."""
        return Figures(self._link, self.now)

    @cached_property
    def accounts(self) -> Accounts:
        """Accounts at model providers."""
        return Accounts(self._link, self.now)

    @cached_property
    def usage(self) -> UsageLog:
        """What calls took and cost."""
        return UsageLog(self._link, self.now)

    @cached_property
    def budgets(self) -> Budgets:
        """What was spent and is reserved."""
        return Budgets(self._link, self.now)

    @cached_property
    def tool_runs(self) -> ToolRuns:
        """Tool calls."""
        return ToolRuns(self._link, self.now)

    @cached_property
    def questions(self) -> Questions:
        """Questions to people."""
        return Questions(self._link, self.now)

    @cached_property
    def ignored(self) -> Ignored:
        """What was dropped at the door."""
        return Ignored(self._link, self.now)

    @cached_property
    def routes(self) -> Routes:
        """What routing decides by."""
        return Routes(self._link, self.now)

    @cached_property
    def pairings(self) -> Pairings:
        """People whom operators let in, and codes."""
        return Pairings(self._link, self.now)

    @cached_property
    def skills(self) -> Skills:
        """All skills."""
        return Skills(self._link, self.now)

    @cached_property
    def schedules(self) -> Schedules:
        """What is to run when."""
        return Schedules(self._link, self.now)

    @cached_property
    def actions(self) -> Actions:
        """All actions."""
        return Actions(self._link, self.now)

    @cached_property
    def delegations(self) -> Delegations:
        """Delegation jobs and their delegators."""
        return Delegations(self._link, self.now)

    @cached_property
    def colleagues(self) -> Colleagues:
        """Agents that a task may be passed to."""
        return Colleagues(self._link, self.now)

    @cached_property
    def requests(self) -> Requests:
        """What models were asked, for people."""
        return Requests(self._link, self.now)

    @cached_property
    def versions(self) -> AgentVersions:
        """The history of every agent."""
        return AgentVersions(self._link, self.now)
