"""All settings, and the only package that reads the environment."""

from maestro.domain.settings.entries import (
    DEFAULT_CLI_MODEL,
    DEFAULT_MODELS,
    AccountSettings,
    AgentSettings,
    ChannelSettings,
    ClientSettings,
)
from maestro.domain.settings.jobs import JobSettings
from maestro.domain.settings.process import TemporalSettings, WebSettings, WebuiSettings
from maestro.domain.settings.section import is_loopback
from maestro.domain.settings.tools import McpServerSettings, ToolSettings
from maestro.settings.environment import PROVIDER_VARIABLES, find_file, found_accounts, read_environment, variable_of
from maestro.settings.loading import Loaded, Survey, load, named_file, survey_settings
from maestro.settings.model import Settings

__all__ = [
    "DEFAULT_CLI_MODEL",
    "DEFAULT_MODELS",
    "PROVIDER_VARIABLES",
    "AccountSettings",
    "AgentSettings",
    "ChannelSettings",
    "ClientSettings",
    "JobSettings",
    "Loaded",
    "McpServerSettings",
    "Settings",
    "Survey",
    "TemporalSettings",
    "ToolSettings",
    "WebSettings",
    "WebuiSettings",
    "find_file",
    "found_accounts",
    "is_loopback",
    "load",
    "named_file",
    "read_environment",
    "survey_settings",
    "variable_of",
]
