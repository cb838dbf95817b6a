"""The repositories of a transaction, each made when it is first asked for."""

from datetime import datetime
from functools import cached_property

from sqlmodel import Session

from maestro.store.accounts import Accounts
from maestro.store.actions import Actions
from maestro.store.agent_edits import AgentEdits
from maestro.store.agent_tokens import AgentTokens
from maestro.store.audit import Audit
from maestro.store.browse import Browse
from maestro.store.budgets import Budgets
from maestro.store.calls import Calls
from maestro.store.chat import Chat
from maestro.store.chat_reminders import ChatReminders
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
from maestro.store.live_values import LiveValues
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
from maestro.store.requests import Requests
from maestro.store.routes import Routes
from maestro.store.schedules import Schedules
from maestro.store.skills import Skills
from maestro.store.steps import Steps
from maestro.store.tool_runs import ToolRuns
from maestro.store.usage import UsageLog
from maestro.store.versions import AgentVersions


class Repositories:
    """One of each, inside one transaction; ``now`` is the same for everything in it."""

    def __init__(self, session: Session, now: datetime) -> None:
        self.now = now
        self._session = session

    @cached_property
    def inbox(self) -> Inbox:
        """Received messages."""
        return Inbox(self._session, self.now)

    @cached_property
    def jobs(self) -> Jobs:
        """Jobs and their places in lanes."""
        return Jobs(self._session, self.now)

    @cached_property
    def steps(self) -> Steps:
        """The journal of every job's steps."""
        return Steps(self._session, self.now)

    @cached_property
    def agents(self) -> AgentEdits:
        """Agents and their channels."""
        return AgentEdits(self._session, self.now)

    @cached_property
    def clients(self) -> Clients:
        """Who pays."""
        return Clients(self._session, self.now)

    @cached_property
    def conversations(self) -> Conversations:
        """Conversations and messages."""
        return Conversations(self._session, self.now)

    @cached_property
    def merges(self) -> Merges:
        """Messages that are answered together."""
        return Merges(self._session, self.now)

    @cached_property
    def conversation_lists(self) -> ConversationLists:
        """Conversations and what was said in them, for people."""
        return ConversationLists(self._session, self.now)

    @cached_property
    def removals(self) -> Removals:
        """What is deleted for good."""
        return Removals(self._session, self.now)

    @cached_property
    def media(self) -> Media:
        """Files that came with messages."""
        return Media(self._session, self.now)

    @cached_property
    def memory(self) -> Memory:
        """What agents remember."""
        return Memory(self._session, self.now)

    @cached_property
    def memory_edits(self) -> MemoryEdits:
        """What agents remember, for operators."""
        return MemoryEdits(self._session, self.now)

    @cached_property
    def compactions(self) -> Compactions:
        """What compactions took away and left behind."""
        return Compactions(self._session, self.now)

    @cached_property
    def prompts(self) -> Prompts:
        """Prompts as references, and their parts."""
        return Prompts(self._session, self.now)

    @cached_property
    def calls(self) -> Calls:
        """Model calls."""
        return Calls(self._session, self.now)

    @cached_property
    def deliveries(self) -> Deliveries:
        """What goes out."""
        return Deliveries(self._session, self.now)

    @cached_property
    def people(self) -> People:
        """Tickets, channels and uploads of the web connector."""
        return People(self._session, self.now)

    @cached_property
    def owners(self) -> Owners:
        """Whose word always counts."""
        return Owners(self._session, self.now)

    @cached_property
    def audit(self) -> Audit:
        """Who did what."""
        return Audit(self._session, self.now)

    @cached_property
    def browse(self) -> Browse:
        """What operators look at."""
        return Browse(self._session, self.now)

    @cached_property
    def figures(self) -> Figures:
        """What monitoring counts."""
        return Figures(self._session, self.now)

    @cached_property
    def accounts(self) -> Accounts:
        """Accounts at model providers."""
        return Accounts(self._session, self.now)

    @cached_property
    def usage(self) -> UsageLog:
        """What calls took and cost."""
        return UsageLog(self._session, self.now)

    @cached_property
    def budgets(self) -> Budgets:
        """What was spent and is reserved."""
        return Budgets(self._session, self.now)

    @cached_property
    def tool_runs(self) -> ToolRuns:
        """Tool calls."""
        return ToolRuns(self._session, self.now)

    @cached_property
    def questions(self) -> Questions:
        """Questions to people."""
        return Questions(self._session, self.now)

    @cached_property
    def ignored(self) -> Ignored:
        """What was dropped at the door."""
        return Ignored(self._session, self.now)

    @cached_property
    def routes(self) -> Routes:
        """What routing decides by."""
        return Routes(self._session, self.now)

    @cached_property
    def pairings(self) -> Pairings:
        """People whom operators let in, and codes."""
        return Pairings(self._session, self.now)

    @cached_property
    def skills(self) -> Skills:
        """All skills."""
        return Skills(self._session, self.now)

    @cached_property
    def schedules(self) -> Schedules:
        """What is to run when."""
        return Schedules(self._session, self.now)

    @cached_property
    def actions(self) -> Actions:
        """All actions."""
        return Actions(self._session, self.now)

    @cached_property
    def delegations(self) -> Delegations:
        """Delegation jobs and their delegators."""
        return Delegations(self._session, self.now)

    @cached_property
    def colleagues(self) -> Colleagues:
        """Agents that a task may be passed to."""
        return Colleagues(self._session, self.now)

    @cached_property
    def requests(self) -> Requests:
        """What models were asked, for people."""
        return Requests(self._session, self.now)

    @cached_property
    def versions(self) -> AgentVersions:
        """The history of every agent."""
        return AgentVersions(self._session, self.now)

    @cached_property
    def chat(self) -> Chat:
        """The posts of #maestro and who read them."""
        return Chat(self._session, self.now)

    @cached_property
    def chat_reminders(self) -> ChatReminders:
        """Who is to be reminded that the chat is no place to ask."""
        return ChatReminders(self._session, self.now)

    @cached_property
    def agent_tokens(self) -> AgentTokens:
        """By which agents outside are known."""
        return AgentTokens(self._session, self.now)

    @cached_property
    def live_settings(self) -> LiveValues:
        """What was set at run time."""
        return LiveValues(self._session, self.now)
