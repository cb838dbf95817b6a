"""Everything that can be set, and the only place that reads the environment."""

from maestro.settings.checks import is_loopback
from maestro.settings.entries import DEFAULT_MODELS, AccountSettings, AgentSettings, ChannelSettings
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
    "LogSettings",
    "OwnerSettings",
    "RoutingSettings",
    "Settings",
    "StoreSettings",
    "TemporalSettings",
    "WebSettings",
    "WebuiSettings",
    "is_loopback",
]
