"""Every table, imported so that the metadata is complete."""

from sqlmodel import SQLModel

from maestro.domain.accounts import AccountLimit, ModelAccount
from maestro.domain.actions import Action
from maestro.domain.agents import Agent, AgentChannel, AgentVersion, BotInstance
from maestro.domain.budgets import Client, Reservation, Spending
from maestro.domain.calls import LLMCall, Prompt, PromptPart
from maestro.domain.compaction import Compaction
from maestro.domain.conversations import ArchivedMessage, Conversation, Message
from maestro.domain.deliveries import Delivery, OutboundLane
from maestro.domain.ignored import IgnoredLines
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs import Job, JobStep
from maestro.domain.media import MediaFile
from maestro.domain.memory import MemoryFact, MemoryState
from maestro.domain.pairing import Invitation, KnownPerson, Pairing
from maestro.domain.people import AuditEntry, ChannelOwner, ConnectorStatus, Owner, UploadedFile, WebTicket
from maestro.domain.questions import Question
from maestro.domain.removal import DiscardedFile, RemovedConversation
from maestro.domain.schedules import Cron, Heartbeat
from maestro.domain.skills import SkillProblem, SkillRow
from maestro.domain.tools import ToolRun
from maestro.domain.usage import UsageRow

TABLES = (
    AccountLimit,
    Action,
    Agent,
    AgentChannel,
    AgentVersion,
    ArchivedMessage,
    AuditEntry,
    BotInstance,
    ChannelOwner,
    Client,
    Compaction,
    ConnectorStatus,
    Conversation,
    Cron,
    Delivery,
    DiscardedFile,
    Heartbeat,
    IgnoredLines,
    InboxRow,
    Invitation,
    Job,
    JobStep,
    KnownPerson,
    LLMCall,
    MediaFile,
    MemoryFact,
    MemoryState,
    Message,
    ModelAccount,
    OutboundLane,
    Owner,
    Pairing,
    Prompt,
    PromptPart,
    Question,
    RemovedConversation,
    Reservation,
    SkillProblem,
    SkillRow,
    Spending,
    ToolRun,
    UploadedFile,
    UsageRow,
    WebTicket,
)

metadata = SQLModel.metadata
