"""A transaction, and what is done in one across the repositories."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Generic, TypeVar

from ulid import ULID

from maestro.domain.errors import Conflict, Forbidden, InvalidEdit, MaestroError, NotFound
from maestro.domain.jobs.busy import INTERRUPTED, interrupted
from maestro.domain.jobs.job import CANCELLED_NOTICE, Ending, Job, JobStatus, notice_of
from maestro.domain.messages import InboxRow, LaneKey
from maestro.domain.questions.question import Answer
from maestro.store.agents.agents import Channels, Colleagues, RoutingSnapshots
from maestro.store.agents.edits import AgentEdits, AgentVersions
from maestro.store.agents.skills import Skills
from maestro.store.agents.tokens import AgentTokens
from maestro.store.background.runs import ScheduleFollowing, ScheduleRuns, ScheduleStarts
from maestro.store.background.schedules import ScheduleEdits
from maestro.store.background.webhooks import WebhookEndpoints
from maestro.store.cache import RowVersions, StoreStates
from maestro.store.chat import Chat, ChatReminders
from maestro.store.conversations.conversations import Compactions, Conversations
from maestro.store.conversations.inbox import IgnoredMessages, Inbox, MediaFiles
from maestro.store.conversations.lists import ConversationLists
from maestro.store.conversations.quotes import QuotedMessages
from maestro.store.conversations.removals import Removals
from maestro.store.deliveries.deliveries import Deliveries, JobFiles
from maestro.store.deliveries.drafts import Drafts
from maestro.store.deliveries.reports import DeliveryReports
from maestro.store.engine.repository import Link
from maestro.store.jobs.actions import Actions, ToolRuns
from maestro.store.jobs.batches import BatchCandidates, Batches
from maestro.store.jobs.claims import MergedJobs
from maestro.store.jobs.delegations import Delegations
from maestro.store.jobs.jobs import Jobs
from maestro.store.jobs.questions import Questions
from maestro.store.jobs.related import DependentRows, JobDependents, ModelCallers
from maestro.store.jobs.steps import StepRecords
from maestro.store.llm.accounts import Accounts
from maestro.store.llm.budgets import UsageLog, UsedBudgets
from maestro.store.llm.calls import Calls
from maestro.store.llm.prompts import ModelRequests, Prompts
from maestro.store.memory.edits import MemoryEdits
from maestro.store.memory.memory import Memory
from maestro.store.overrides import SettingsOverrides
from maestro.store.overviews.counts import JobCounts, Overview
from maestro.store.overviews.figures import MonitoringFigures
from maestro.store.overviews.jobs import JobLists, JobTexts
from maestro.store.overviews.latency import Latency
from maestro.store.platforms.bots import Bots, ChannelMoves
from maestro.store.users.access import Owners, Pairings
from maestro.store.users.audit import Audit
from maestro.store.users.clients import PayingClients
from maestro.store.users.web import EndedLogins, WebUsers

Done = TypeVar("Done")
Kind = TypeVar("Kind")


class LazyRepository(Generic[Kind]):
    """A repository of a transaction, made when it is first asked for, without the lock of a ``cached_property``."""

    def __init__(self, kind: Callable[[Link, datetime], Kind]) -> None:
        self._kind = kind

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, transaction: "Transaction", owner: type[Any]) -> Kind:
        # Kept in the transaction itself, where Python looks first the next time.
        made = transaction.__dict__[self._name] = self._kind(transaction._link, transaction.now)
        return made


class Transaction:
    """One transaction; ``now`` is the same for everything in it."""

    inbox = LazyRepository(Inbox)
    """Received messages."""
    jobs = LazyRepository(Jobs)
    """Jobs and their places in lanes."""
    steps = LazyRepository(StepRecords)
    """The journal of every job's steps."""
    agents = LazyRepository(AgentEdits)
    """Agents and their channels."""
    clients = LazyRepository(PayingClients)
    """Who pays."""
    conversations = LazyRepository(Conversations)
    """Conversations and messages."""
    merges = LazyRepository(MergedJobs)
    """Messages that are answered together."""
    conversation_lists = LazyRepository(ConversationLists)
    """Conversations and what was said in them, for people."""
    removals = LazyRepository(Removals)
    """What is deleted for good."""
    media = LazyRepository(MediaFiles)
    """Files that came with messages."""
    memory = LazyRepository(Memory)
    """What agents remember."""
    memory_edits = LazyRepository(MemoryEdits)
    """What agents remember, for operators."""
    compactions = LazyRepository(Compactions)
    """What compactions took away and left behind."""
    prompts = LazyRepository(Prompts)
    """Prompts as references, and their parts."""
    callers = LazyRepository(ModelCallers)
    """Jobs that call models, with all that a call asks about them."""
    calls = LazyRepository(Calls)
    """Model calls."""
    deliveries = LazyRepository(Deliveries)
    """What goes out."""
    job_files = LazyRepository(JobFiles)
    """Files that go out with an answer."""
    quotes = LazyRepository(QuotedMessages)
    """What people reply to."""
    reports = LazyRepository(DeliveryReports)
    """What platforms say of what went out."""
    moves = LazyRepository(ChannelMoves)
    """Where channels went."""
    drafts = LazyRepository(Drafts)
    """Answers while they are written."""
    people = LazyRepository(WebUsers)
    """Tickets, channels and uploads of the web connector."""
    bots = LazyRepository(Bots)
    """Our accounts on platforms."""
    channels = LazyRepository(Channels)
    """What was read of channels, and which are closed."""
    owners = LazyRepository(Owners)
    """Whose word always counts."""
    logins = LazyRepository(EndedLogins)
    """Logins that were ended."""
    audit = LazyRepository(Audit)
    """Who did what."""
    browse = LazyRepository(JobLists)
    """What operators look at."""
    papers = LazyRepository(JobTexts)
    """What was said around jobs, in full."""
    figures = LazyRepository(MonitoringFigures)
    """What monitoring counts."""
    accounts = LazyRepository(Accounts)
    """Accounts at model providers."""
    usage = LazyRepository(UsageLog)
    """What calls took and cost."""
    latency = LazyRepository(Latency)
    """How long jobs took."""
    budgets = LazyRepository(UsedBudgets)
    """What was spent and is reserved."""
    tool_runs = LazyRepository(ToolRuns)
    """Tool calls."""
    questions = LazyRepository(Questions)
    """Questions to people."""
    ignored = LazyRepository(IgnoredMessages)
    """What was dropped at the door."""
    routes = LazyRepository(RoutingSnapshots)
    """What routing decides by."""
    pairings = LazyRepository(Pairings)
    """People whom operators let in, and codes."""
    skills = LazyRepository(Skills)
    """All skills."""
    editions = LazyRepository(RowVersions)
    """Whether agents, bots, schedules, skills and accounts are as they were."""
    schedule_following = LazyRepository(ScheduleFollowing)
    """How far Temporal has followed what is planned."""
    schedule_runs = LazyRepository(ScheduleRuns)
    """What the runs of heartbeats and crons leave there."""
    schedule_starts = LazyRepository(ScheduleStarts)
    """Runs that operators begin."""
    schedules = LazyRepository(ScheduleEdits)
    """What is to run when."""
    actions = LazyRepository(Actions)
    """All actions."""
    dependents = LazyRepository(JobDependents)
    """Rows that hang on an open job."""
    delegations = LazyRepository(Delegations)
    """Delegation jobs and their delegators."""
    colleagues = LazyRepository(Colleagues)
    """Agents that a task may be passed to."""
    requests = LazyRepository(ModelRequests)
    """What models were asked, for people."""
    versions = LazyRepository(AgentVersions)
    """The history of every agent."""
    chat = LazyRepository(Chat)
    """The posts of #maestro, who read them, and its sessions."""
    chat_reminders = LazyRepository(ChatReminders)
    """Who is to be reminded that the chat is no place to ask."""
    agent_tokens = LazyRepository(AgentTokens)
    """By which agents outside are known."""
    live_settings = LazyRepository(SettingsOverrides)
    """What was set at run time."""
    webhooks = LazyRepository(WebhookEndpoints)
    """Webhooks, and what came to them."""
    batches = LazyRepository(Batches)
    """Replays of many jobs."""
    prospects = LazyRepository(BatchCandidates)
    """What tells what would become of many jobs."""
    tallies = LazyRepository(JobCounts)
    """How many jobs there are of each kind."""
    overview = LazyRepository(Overview)
    """What operators see first."""
    states = LazyRepository(StoreStates)
    """What the loops of a process wait for."""

    def __init__(self, link: Link, now: datetime) -> None:
        self.now = now
        self._link = link

    def when_committed(self, call: Callable[[], None]) -> None:
        """Call this once the transaction, or the one that it is a part of, is committed; never if it is not."""
        self._link.when_committed.append(call)

    def close_job(self, job_id: str, ending: Ending, dependents: DependentRows | None = None) -> bool:
        """End a job, free its places, inbound and outbound, and ask nobody for it any more; false when it had ended.

        The tasks it gave to other agents may begin if it was answered, and who waits to hear of it may go on.
        ``dependents`` is what hangs on it, where the caller has read that in this transaction.
        """
        rows = dependents or self.dependents.of(job_id)
        if rows.questions:
            self.questions.cancel_of(job_id)
        if rows.calls:
            self.calls.close(job_id)
        if rows.chunks:
            self.deliveries.abandon(job_id)
        if rows.lanes:
            self.deliveries.leave_lanes(job_id)
        ended = self.jobs.end(job_id, ending)
        if ended and (rows.tasks or rows.delegated):
            self.delegations.closed(job_id, ending.status)
        if ended and rows.scheduled:
            self.schedule_runs.closed(job_id, ending.status)
        if ended and ending.is_by_operator:
            self._tell_of_cancellation(self.jobs.read(job_id))
        return ended

    def _tell_of_cancellation(self, job: Job) -> None:
        """Tell the person of a message once, however many messages of a channel are cancelled together."""
        is_message = job.inbox_id is not None and job.parent_id is None and not (job.notice or job.what_if)
        if is_message and not self.jobs.is_pending_notice(job.address, CANCELLED_NOTICE):
            notice = notice_of(job, f"{job.kind}-{ULID()}", CANCELLED_NOTICE, self.now)
            notice.inbox_id = None  # the message may be restarted, and is not answered by this
            self.jobs.add(notice)

    def answer(self, answer: Answer, by: str, inbox_id: int | None = None) -> bool:
        """Keep what a person, ``platform:userId`` or the operator, says to a question, and let its job go on.

        ``inbox_id`` is the message that says it. Returns false, and changes nothing, when the question is not open.
        """
        kept = self.questions.settle(answer, by, inbox_id)
        if kept:
            if answer.question.job_id is not None:
                self.jobs.wake(answer.question.job_id)
            self.audit.add(by, answer.action, str(answer.question.id))
        return kept

    def interrupt(
        self, newer_id: str, lane: LaneKey, row: InboxRow, agent_id: int | None, user_id: str | None = None
    ) -> bool:
        """Let a newer message, which ``agent_id`` would answer, end what that agent does for the same person.

        It is answered in the turn of ``newer_id``, the job of the newer one (docs/decisions.md: busy agents). What runs
        stops at its next step; a chunk that is being sent is sent. Says whether the person knows already that they have
        to wait, and is not told again. What came before a ``/new``, that of ``user_id`` alone if one is given, is
        another conversation and goes on.
        """
        told_to_wait = False
        for one in interrupted(row, agent_id, self.merges.open_in(lane)):
            if self.inbox.next_new_conversation(one.row, user_id) is not None:
                continue
            self.jobs.update(one.job.id, merged_into=newer_id)
            if one.job.status is JobStatus.RUNNING:
                self.jobs.request_stop(one.job.id)
            else:
                self.close_job(one.job.id, Ending(status=JobStatus.CANCELLED, reason=INTERRUPTED))
            told_to_wait = told_to_wait or one.job.told_to_wait
        return told_to_wait

    def flush(self) -> None:
        """Write what waits to be written before the commit, so that what is wrong with it is raised here."""
        self._link.flush()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Take back what the block did, and only that, when it raises."""
        with self._link.savepoint():
            yield

    def attempt(self, wish: Callable[[], Done]) -> Done | MaestroError:
        """Do something, or nothing of it: return instead the error that says what does not fit and how to mend it."""
        try:
            with self.savepoint():
                return wish()
        except (Conflict, Forbidden, InvalidEdit, NotFound) as error:
            return error
