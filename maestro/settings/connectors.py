"""The settings of platforms: a section for each platform that comes with Maestro, and a list of further bots."""

from typing import Literal

from pydantic import Field, SecretStr
from pydantic.alias_generators import to_camel

from connectors.discord.platform import DiscordOptions
from connectors.platforms import platform
from connectors.slack.platform import SlackOptions
from connectors.telegram.platform import TelegramOptions
from connectors.whatsapp.platform import WhatsAppOptions
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.settings.section import NO_SECRET, Section, first_repeated, live, setting
from maestro.domain.values import AccountName, OptionalSlug, Word


class PlatformSettings(Section):
    """The settings that the section of every platform has."""

    enabled: bool = setting(False, "whether Maestro connects the bot")
    account: AccountName = setting(DEFAULT_ACCOUNT, "a name of your choice for this bot")
    agent: OptionalSlug = setting(
        "", "the slug of the agent that answers all messages to this bot; empty: the routing rules choose"
    )
    dm_policy: Literal["pairing", "allowlist", "open"] = live(
        "pairing",
        "the access policy for direct messages of unknown users: `pairing` answers after an operator's approval, "
        "`allowlist` answers only users on the agent's list, `open` answers all",
    )

    @property
    def secrets(self) -> dict[str, SecretStr]:
        """The secrets of the bot, by the names of their keys."""
        return {to_camel(name): value for name, value in self if isinstance(value, SecretStr)}


class DiscordSettings(PlatformSettings, DiscordOptions):
    """The settings of Discord, for a bot of your own."""

    token: SecretStr = setting(NO_SECRET, 'the bot\'s token, best as `"env:NAME"`')


class SlackSettings(PlatformSettings, SlackOptions):
    """The settings of Slack, for an app of your own."""

    bot_token: SecretStr = setting(NO_SECRET, 'the bot\'s token, `xoxb-...`, best as `"env:NAME"`')
    app_token: SecretStr = setting(NO_SECRET, "the token of Socket Mode, `xapp-...`")
    signing_secret: SecretStr = setting(NO_SECRET, "the key with which Slack signs requests of the Events API")


class TelegramSettings(PlatformSettings, TelegramOptions):
    """The settings of Telegram, for a bot of your own."""

    token: SecretStr = setting(NO_SECRET, 'the bot\'s token, best as `"env:NAME"`')
    webhook_secret: SecretStr = setting(
        NO_SECRET, "the secret, of your choice, that Telegram sends with each request in webhook mode"
    )


class WhatsAppSettings(PlatformSettings, WhatsAppOptions):
    """The settings of WhatsApp, for a number of your own."""

    access_token: SecretStr = setting(NO_SECRET, 'the token of a system user, best as `"env:NAME"`')
    app_secret: SecretStr = setting(NO_SECRET, "the key with which Meta signs its requests")
    verify_token: SecretStr = setting(
        NO_SECRET, "the token, of your choice, that Meta sends when the webhook is set up"
    )


class BotSettings(Section):
    """A further bot: a second bot on a platform, or a bot on a platform that an installed package connects."""

    platform: Word = Field(description="the platform, as its package names the platform")
    account: AccountName = setting(DEFAULT_ACCOUNT, "a name of your choice, unique on the platform")
    enabled: bool = setting(True, "whether Maestro connects the bot")
    agent: OptionalSlug = setting(
        "", "the slug of the agent that answers all messages to this bot; empty: the routing rules choose"
    )
    secrets: dict[str, SecretStr] = setting({}, 'the bot\'s secrets by name, such as `{"token": "env:SECOND_TOKEN"}`')
    options: dict[str, object] = setting({}, "options of the platform, named like the keys of the platform's section")


class ConnectorSettings(Section):
    """The bots on platforms other than the web connector."""

    discord: DiscordSettings = DiscordSettings()
    slack: SlackSettings = SlackSettings()
    telegram: TelegramSettings = TelegramSettings()
    whatsapp: WhatsAppSettings = WhatsAppSettings()
    bots: tuple[BotSettings, ...] = setting((), "bots besides those of the sections above")

    @property
    def sections(self) -> dict[str, PlatformSettings]:
        return {"discord": self.discord, "slack": self.slack, "telegram": self.telegram, "whatsapp": self.whatsapp}

    def enabled_bots(self) -> list[BotSettings]:
        """Return the bots to connect; raises ``ConfigurationError`` for an unknown platform."""
        bots = []
        for name, section in self.sections.items():
            if section.enabled:
                aliases = {field.alias or key for key, field in platform(name).options.model_fields.items()}
                options = {key: value for key, value in section.model_dump(by_alias=True).items() if key in aliases}
                account, agent = section.account, section.agent
                bots.append(
                    BotSettings(platform=name, account=account, agent=agent, secrets=section.secrets, options=options)
                )
        for bot in self.bots:
            if bot.enabled:
                platform(bot.platform)
                bots.append(bot)
        return bots


def check_unique_bots(connectors: ConnectorSettings) -> ConnectorSettings:
    """Raise ``ValueError`` if two bots of a platform have the same account name, or a bot is the web connector."""
    names = [(name, section.account) for name, section in connectors.sections.items() if section.enabled]
    repeated = first_repeated([*names, *((bot.platform, bot.account) for bot in connectors.bots if bot.enabled)])
    if repeated is not None:
        raise ValueError(f"two bots have the name {'/'.join(repeated)}; give one of them another account")
    if any(bot.platform == "web" for bot in connectors.bots):
        raise ValueError("the web connector has its own section, web; remove it from connectors.bots")
    return connectors
