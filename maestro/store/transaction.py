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
from maestro.store.accounts import Accounts
from maestro.store.actions import Actions
from maestro.store.agent_edits import AgentEdits
from maestro.store.agent_tokens import AgentTokens
from maestro.store.agents import Channels, Colleagues, Routes
from maestro.store.audit import Audit
from maestro.store.batches import Batches
from maestro.store.bots import Bots
from maestro.store.browse import Browse
from maestro.store.budgets import UsageLog
from maestro.store.calls import Calls
from maestro.store.changes import Editions, StoreStates
from maestro.store.chat import Chat, ChatReminders
from maestro.store.claims import Merges
from maestro.store.clients import Clients
from maestro.store.conversation_lists import ConversationLists
from maestro.store.conversations import Compactions, Conversations
from maestro.store.delegations import Delegations
from maestro.store.deliveries import Deliveries, JobFiles
from maestro.store.drafts import Drafts
from maestro.store.figures import Figures
from maestro.store.ignored import Ignored
from maestro.store.inbox import Inbox, Media
from maestro.store.job_papers import JobPapers
from maestro.store.job_rows import Callers, DependentRows, Dependents
from maestro.store.jobs import Jobs
from maestro.store.latency import Latency
from maestro.store.live_values import LiveValues
from maestro.store.logins import Logins
from maestro.store.memory import Memory
from maestro.store.memory_edits import MemoryEdits
from maestro.store.moves import Moves
from maestro.store.overview import Overview
from maestro.store.owners import Owners
from maestro.store.pairing import Pairings
from maestro.store.people import People
from maestro.store.prompts import Prompts
from maestro.store.prospects import Prospects
from maestro.store.questions import Questions
from maestro.store.quotes import Quotes
from maestro.store.removals import Removals
from maestro.store.reports import Reports
from maestro.store.repository import Link
from maestro.store.requests import Requests
from maestro.store.schedule_edits import ScheduleEdits
from maestro.store.schedule_following import ScheduleFollowing
from maestro.store.schedule_runs import ScheduleRuns
from maestro.store.schedule_starts import ScheduleStarts
from maestro.store.skills import Skills
from maestro.store.steps import Steps
from maestro.store.tallies import Tallies
from maestro.store.tool_runs import ToolRuns
from maestro.store.usage_budgets import UsedBudgets
from maestro.store.versions import AgentVersions
from maestro.store.webhooks import Webhooks

Done = TypeVar("Done")
Kind = TypeVar("Kind")


class OnDemand(Generic[Kind]):
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

    inbox = OnDemand(Inbox)
    """Received messages."""
    jobs = OnDemand(Jobs)
    """Jobs and their places in lanes."""
    steps = OnDemand(Steps)
    """The journal of every job's steps."""
    agents = OnDemand(AgentEdits)
    """Agents and their channels."""
    clients = OnDemand(Clients)
    """Who pays."""
    conversations = OnDemand(Conversations)
    """Conversations and messages."""
    merges = OnDemand(Merges)
    """Messages that are answered together."""
    conversation_lists = OnDemand(ConversationLists)
    """Conversations and what was said in them, for people."""
    removals = OnDemand(Removals)
    """What is deleted for good."""
    media = OnDemand(Media)
    """Files that came with messages."""
    memory = OnDemand(Memory)
    """What agents remember."""
    memory_edits = OnDemand(MemoryEdits)
    """What agents remember, for operators."""
    compactions = OnDemand(Compactions)
    """What compactions took away and left behind."""
    prompts = OnDemand(Prompts)
    """Prompts as references, and their parts."""
    callers = OnDemand(Callers)
    """Jobs that call models, with all that a call asks about them."""
    calls = OnDemand(Calls)
    """Model calls."""
    deliveries = OnDemand(Deliveries)
    """What goes out."""
    job_files = OnDemand(JobFiles)
    """Files that go out with an answer."""
    quotes = OnDemand(Quotes)
    """What people reply to."""
    reports = OnDemand(Reports)
    """What platforms say of what went out."""
    moves = OnDemand(Moves)
    """Where channels went."""
    drafts = OnDemand(Drafts)
    """Answers while they are written."""
    people = OnDemand(People)
    """Tickets, channels and uploads of the web connector."""
    bots = OnDemand(Bots)
    """Our accounts on platforms."""
    channels = OnDemand(Channels)
    """What was read of channels, and which are closed."""
    owners = OnDemand(Owners)
    """Whose word always counts."""
    logins = OnDemand(Logins)
    """Logins that were ended."""
    audit = OnDemand(Audit)
    """Who did what."""
    browse = OnDemand(Browse)
    """What operators look at."""
    papers = OnDemand(JobPapers)
    """What was said around jobs, in full."""
    figures = OnDemand(Figures)
    """What monitoring counts."""
    accounts = OnDemand(Accounts)
    """Accounts at model providers."""
    usage = OnDemand(UsageLog)
    """What calls took and cost."""
    latency = OnDemand(Latency)
    """How long jobs took."""
    budgets = OnDemand(UsedBudgets)
    """What was spent and is reserved."""
    tool_runs = OnDemand(ToolRuns)
    """Tool calls."""
    questions = OnDemand(Questions)
    """Questions to people."""
    ignored = OnDemand(Ignored)
    """What was dropped at the door."""
    routes = OnDemand(Routes)
    """What routing decides by."""
    pairings = OnDemand(Pairings)
    """People whom operators let in, and codes."""
    skills = OnDemand(Skills)
    """All skills."""
    editions = OnDemand(Editions)
    """Whether agents, bots, schedules, skills and accounts are as they were."""
    schedule_following = OnDemand(ScheduleFollowing)
    """How far Temporal has followed what is planned."""
    schedule_runs = OnDemand(ScheduleRuns)
    """What the runs of heartbeats and crons leave there."""
    schedule_starts = OnDemand(ScheduleStarts)
    """Runs that operators begin."""
    schedules = OnDemand(ScheduleEdits)
    """What is to run when."""
    actions = OnDemand(Actions)
    """All actions."""
    dependents = OnDemand(Dependents)
    """Rows that hang on an open job."""
    delegations = OnDemand(Delegations)
    """Delegation jobs and their delegators."""
    colleagues = OnDemand(Colleagues)
    """Agents that a task may be passed to."""
    requests = OnDemand(Requests)
    """What models were asked, for people."""
    versions = OnDemand(AgentVersions)
    """The history of every agent."""
    chat = OnDemand(Chat)
    """The posts of #maestro, who read them, and its sessions."""
    chat_reminders = OnDemand(ChatReminders)
    """Who is to be reminded that the chat is no place to ask."""
    agent_tokens = OnDemand(AgentTokens)
    """By which agents outside are known."""
    live_settings = OnDemand(LiveValues)
    """What was set at run time."""
    webhooks = OnDemand(Webhooks)
    """Webhooks, and what came to them."""
    batches = OnDemand(Batches)
    """Replays of many jobs."""
    prospects = OnDemand(Prospects)
    """What tells what would become of many jobs."""
    tallies = OnDemand(Tallies)
    """How many jobs there are of each kind."""
    overview = OnDemand(Overview)
    """What operators see first."""
    states = OnDemand(StoreStates)
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
