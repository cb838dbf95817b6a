"""The bots that the configuration connects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from connectors.platforms import platform
from maestro.settings import OwnSettings, Settings


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
    connectors = settings.connectors
    of_sections = [_of_section(name, section) for name, section in connectors.sections.items() if section.enabled]
    of_list = [
        ConfiguredBot(entry.platform, entry.account, entry.agent, entry.secrets, entry.options)
        for entry in connectors.bots
        if entry.enabled
    ]
    for bot in of_list:
        platform(bot.platform)
    return [*of_sections, *of_list]


def _of_section(name: str, section: OwnSettings) -> ConfiguredBot:
    described = platform(name)
    written = section.model_dump(by_alias=True)
    aliases = {field.alias or key for key, field in described.options.model_fields.items()}
    options = {key: value for key, value in written.items() if key in aliases}
    return ConfiguredBot(name, section.account, section.agent, section.secrets, options)
