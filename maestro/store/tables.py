"""Every table, imported so that the metadata is complete."""

from sqlmodel import SQLModel

from maestro.domain.accounts import AccountLimit, ModelAccount
from maestro.domain.agents import Agent, AgentChannel
from maestro.domain.budgets import Client, Reservation, Spending
from maestro.domain.calls import LLMCall, Prompt, PromptPart
from maestro.domain.compaction import Compaction
from maestro.domain.conversations import ArchivedMessage, Conversation, Message
from maestro.domain.deliveries import Delivery, OutboundLane
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs import Job, JobStep
from maestro.domain.media import MediaFile
from maestro.domain.memory import MemoryFact
from maestro.domain.people import AuditEntry, ChannelOwner, ConnectorStatus, Owner, UploadedFile, WebTicket
from maestro.domain.questions import Question
from maestro.domain.tools import ToolRun
from maestro.domain.usage import UsageRow

TABLES = (
    AccountLimit,
    Agent,
    AgentChannel,
    ArchivedMessage,
    AuditEntry,
    ChannelOwner,
    Client,
    Compaction,
    ConnectorStatus,
    Conversation,
    Delivery,
    InboxRow,
    Job,
    JobStep,
    LLMCall,
    MediaFile,
    MemoryFact,
    Message,
    ModelAccount,
    OutboundLane,
    Owner,
    Prompt,
    PromptPart,
    Question,
    Reservation,
    Spending,
    ToolRun,
    UploadedFile,
    UsageRow,
    WebTicket,
)

metadata = SQLModel.metadata
