"""The bots that the configuration connects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from connectors.platforms import platform
from maestro.settings import Settings


@dataclass(frozen=True)
class ConfiguredBot:
    """A bot of the configuration; its ``options`` are named as in the platform's section."""

    platform: str
    account: str
    agent: str
    secrets: Mapping[str, SecretStr]
    options: Mapping[str, object]


def configured_bots(settings: Settings) -> Sequence[ConfiguredBot]:
    """Return the bots that the configuration connects; raises ``ConfigurationError`` for an unknown platform."""
    bots = []
    for name, section in settings.connectors.sections.items():
        if section.enabled:
            aliases = {field.alias or key for key, field in platform(name).options.model_fields.items()}
            options = {key: value for key, value in section.model_dump(by_alias=True).items() if key in aliases}
            bots.append(ConfiguredBot(name, section.account, section.agent, section.secrets, options))
    for entry in settings.connectors.bots:
        if entry.enabled:
            platform(entry.platform)
            bots.append(ConfiguredBot(entry.platform, entry.account, entry.agent, entry.secrets, entry.options))
    return bots
