"""All tables, imported so that the metadata is complete."""

from sqlmodel import SQLModel

from maestro.domain.agents.agent import Agent, AgentChannel, AgentVersion
from maestro.domain.agents.tokens import AgentToken
from maestro.domain.bots.bot import BotInstance
from maestro.domain.bots.channels import ChannelCursor, DisabledChannel
from maestro.domain.chat.message import ChatCursor, ChatMessage, ChatReminder
from maestro.domain.chat.session import ChatSession
from maestro.domain.conversations.conversation import ArchivedMessage, Compaction, Conversation, Message
from maestro.domain.conversations.removal import DiscardedFile, RemovedConversation
from maestro.domain.deliveries import Delivery, JobFile, OutboundLane
from maestro.domain.drafts import Draft
from maestro.domain.editions import Edition
from maestro.domain.jobs.batches import ReplayBatch, ReplayItem
from maestro.domain.jobs.job import Job, JobStep
from maestro.domain.live import SettingsVersion
from maestro.domain.llm.accounts import AccountLimit, ModelAccount
from maestro.domain.llm.budgets import Client, Reservation, Spending
from maestro.domain.llm.calls import LLMCall, Prompt, PromptPart
from maestro.domain.llm.usage import UsageDay, UsageRow
from maestro.domain.media import MediaFile
from maestro.domain.memory.memory import MemoryFact, MemoryState
from maestro.domain.messages import InboxRow
from maestro.domain.people.ignored import IgnoredLines
from maestro.domain.people.pairing import Invitation, KnownPerson, Pairing
from maestro.domain.people.people import (
    AuditEntry,
    ChannelOwner,
    ConnectorStatus,
    EndedLogin,
    Owner,
    UploadedFile,
    WebTicket,
)
from maestro.domain.questions.question import Question
from maestro.domain.schedules.schedule import Cron, Heartbeat
from maestro.domain.skills.skill import SkillProblem, SkillRow
from maestro.domain.tags.actions import Action
from maestro.domain.tools import ToolPicture, ToolRun
from maestro.domain.webhooks.webhook import Webhook, WebhookDelivery

TABLES = (
    AccountLimit,
    Action,
    Agent,
    AgentChannel,
    AgentToken,
    AgentVersion,
    ArchivedMessage,
    AuditEntry,
    BotInstance,
    ChannelCursor,
    ChannelOwner,
    ChatCursor,
    ChatMessage,
    ChatReminder,
    ChatSession,
    Client,
    Compaction,
    ConnectorStatus,
    Conversation,
    Cron,
    Delivery,
    DisabledChannel,
    DiscardedFile,
    Draft,
    Edition,
    EndedLogin,
    Heartbeat,
    IgnoredLines,
    InboxRow,
    Invitation,
    Job,
    JobFile,
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
    ReplayBatch,
    ReplayItem,
    Reservation,
    SettingsVersion,
    SkillProblem,
    SkillRow,
    Spending,
    ToolPicture,
    ToolRun,
    UploadedFile,
    UsageDay,
    UsageRow,
    WebTicket,
    Webhook,
    WebhookDelivery,
)

metadata = SQLModel.metadata
