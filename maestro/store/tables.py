"""Every table, imported so that the metadata is complete."""

from sqlmodel import SQLModel

from maestro.domain.agents import Agent, AgentChannel
from maestro.domain.calls import LLMCall, Prompt, PromptPart
from maestro.domain.compaction import Compaction
from maestro.domain.conversations import ArchivedMessage, Conversation, Message
from maestro.domain.deliveries import Delivery, OutboundLane
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs import Job, JobStep
from maestro.domain.media import MediaFile
from maestro.domain.memory import MemoryFact
from maestro.domain.people import AuditEntry, ChannelOwner, ConnectorStatus, Owner, UploadedFile, WebTicket

TABLES = (
    Agent,
    AgentChannel,
    ArchivedMessage,
    AuditEntry,
    ChannelOwner,
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
    OutboundLane,
    Owner,
    Prompt,
    PromptPart,
    UploadedFile,
    WebTicket,
)

metadata = SQLModel.metadata
