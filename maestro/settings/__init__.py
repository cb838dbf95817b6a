"""Everything that can be set, and the only place that reads the environment."""

from maestro.settings.access import ConductorSettings, PairingSettings, RoutingSettings
from maestro.settings.chat import ChatSettings, ScannerSettings, SessionSettings
from maestro.settings.checks import is_loopback
from maestro.settings.connectors import (
    BotSettings,
    ConnectorSettings,
    DiscordSettings,
    OwnSettings,
    SlackSettings,
    TelegramSettings,
    WhatsAppSettings,
)
from maestro.settings.entries import (
    DEFAULT_CLI_MODEL,
    DEFAULT_MODELS,
    AccountSettings,
    AgentSettings,
    ChannelSettings,
    ClientSettings,
)
from maestro.settings.environment import PROVIDER_VARIABLES, found_accounts, read_environment, variable_of
from maestro.settings.file import find_file
from maestro.settings.jobs import JobSettings
from maestro.settings.knowledge import MemorySettings, SkillSettings
from maestro.settings.llm import BudgetSettings, LlmSettings
from maestro.settings.loading import Loaded, ValueOrigin, load
from maestro.settings.model import (
    LogSettings,
    OwnerSettings,
    Settings,
    StoreSettings,
    TemporalSettings,
    WebSettings,
    WebuiSettings,
)
from maestro.settings.survey import Survey, named_file, survey
from maestro.settings.tools import McpServerSettings, QuestionSettings, ToolSettings

__all__ = [
    "DEFAULT_CLI_MODEL",
    "DEFAULT_MODELS",
    "PROVIDER_VARIABLES",
    "AccountSettings",
    "AgentSettings",
    "BotSettings",
    "BudgetSettings",
    "ChannelSettings",
    "ChatSettings",
    "ClientSettings",
    "ConductorSettings",
    "ConnectorSettings",
    "DiscordSettings",
    "JobSettings",
    "LlmSettings",
    "Loaded",
    "LogSettings",
    "McpServerSettings",
    "MemorySettings",
    "OwnSettings",
    "OwnerSettings",
    "PairingSettings",
    "QuestionSettings",
    "RoutingSettings",
    "ScannerSettings",
    "SessionSettings",
    "Settings",
    "SkillSettings",
    "SlackSettings",
    "StoreSettings",
    "Survey",
    "TelegramSettings",
    "TemporalSettings",
    "ToolSettings",
    "ValueOrigin",
    "WebSettings",
    "WebuiSettings",
    "WhatsAppSettings",
    "find_file",
    "found_accounts",
    "is_loopback",
    "load",
    "named_file",
    "read_environment",
    "survey",
    "variable_of",
]
