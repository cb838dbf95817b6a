"""Everything that can be set, and the only place that reads the environment."""

from maestro.settings.checks import is_loopback
from maestro.settings.entries import DEFAULT_MODELS, AccountSettings, AgentSettings, ChannelSettings
from maestro.settings.environment import found_accounts, read_environment
from maestro.settings.loading import Loaded, ValueOrigin, load
from maestro.settings.model import (
    JobSettings,
    LlmSettings,
    LogSettings,
    OwnerSettings,
    RoutingSettings,
    Settings,
    StoreSettings,
    TemporalSettings,
    WebSettings,
    WebuiSettings,
)

__all__ = [
    "DEFAULT_MODELS",
    "AccountSettings",
    "AgentSettings",
    "ChannelSettings",
    "JobSettings",
    "LlmSettings",
    "Loaded",
    "LogSettings",
    "OwnerSettings",
    "RoutingSettings",
    "Settings",
    "StoreSettings",
    "TemporalSettings",
    "ValueOrigin",
    "WebSettings",
    "WebuiSettings",
    "found_accounts",
    "is_loopback",
    "load",
    "read_environment",
]
