"""Everything that can be set, and the only place that reads the environment."""

from maestro.domain.settings.access import ConductorSettings, PairingSettings, RoutingSettings
from maestro.domain.settings.chat import ChatSettings, ScannerSettings, SessionSettings
from maestro.domain.settings.entries import (
    DEFAULT_CLI_MODEL,
    DEFAULT_MODELS,
    AccountSettings,
    AgentSettings,
    ChannelSettings,
    ClientSettings,
)
from maestro.domain.settings.jobs import JobSettings
from maestro.domain.settings.llm import BudgetSettings, LlmSettings
from maestro.domain.settings.process import (
    LogSettings,
    OwnerSettings,
    StoreSettings,
    TemporalSettings,
    WebSettings,
    WebuiSettings,
)
from maestro.domain.settings.section import is_loopback
from maestro.domain.settings.tools import (
    McpServerSettings,
    MemorySettings,
    QuestionSettings,
    SkillSettings,
    ToolSettings,
)
from maestro.settings.connectors import (
    BotSettings,
    ConnectorSettings,
    DiscordSettings,
    OwnSettings,
    SlackSettings,
    TelegramSettings,
    WhatsAppSettings,
)
from maestro.settings.environment import PROVIDER_VARIABLES, find_file, found_accounts, read_environment, variable_of
from maestro.settings.loading import Loaded, Survey, ValueOrigin, load, named_file, survey_settings
from maestro.settings.model import Settings

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
    "survey_settings",
    "variable_of",
]
