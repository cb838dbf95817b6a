"""The settings of platforms: one section for each that Maestro connects itself, and a list for every other bot."""

from typing import Literal

from pydantic import Field, SecretStr

from connectors.discord.config import TOKEN, DiscordOptions
from connectors.slack.config import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, SlackOptions
from connectors.telegram.config import TOKEN as TELEGRAM_TOKEN
from connectors.telegram.config import WEBHOOK_SECRET, TelegramOptions
from connectors.whatsapp.config import ACCESS_TOKEN, APP_SECRET, VERIFY_TOKEN, WhatsAppOptions
from maestro.domain.fields import AccountName, OptionalSlug, Word
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.settings.section import NO_SECRET, Section, first_repeated, live, setting


class PlatformSettings(Section):
    """The settings of every platform."""

    enabled: bool = setting(False, "whether the bot is connected")
    account: AccountName = setting(DEFAULT_ACCOUNT, "a name of your choice for this bot")
    agent: OptionalSlug = setting(
        "", "the slug of the agent that answers all that is said to this bot; empty: the rules of routing"
    )
    dm_policy: Literal["pairing", "allowlist", "open"] = live(
        "pairing",
        "who is answered in direct messages besides the people we know: those who were paired, only those on the "
        "agent's list, or everybody",
    )


class DiscordSettings(PlatformSettings, DiscordOptions):
    """Discord, with a bot of your own."""

    token: SecretStr = setting(NO_SECRET, 'the bot\'s token, best as `"env:NAME"`')

    @property
    def secrets(self) -> dict[str, SecretStr]:
        """The secrets by name."""
        return {TOKEN: self.token}


class SlackSettings(PlatformSettings, SlackOptions):
    """Slack, with an app of your own."""

    bot_token: SecretStr = setting(NO_SECRET, 'the bot\'s token, `xoxb-...`, best as `"env:NAME"`')
    app_token: SecretStr = setting(NO_SECRET, "the token of Socket Mode, `xapp-...`")
    signing_secret: SecretStr = setting(NO_SECRET, "what requests of the Events API are signed with")

    @property
    def secrets(self) -> dict[str, SecretStr]:
        """The secrets by name."""
        return {BOT_TOKEN: self.bot_token, APP_TOKEN: self.app_token, SIGNING_SECRET: self.signing_secret}


class TelegramSettings(PlatformSettings, TelegramOptions):
    """Telegram, with a bot of your own."""

    token: SecretStr = setting(NO_SECRET, 'the bot\'s token, best as `"env:NAME"`')
    webhook_secret: SecretStr = setting(
        NO_SECRET, "what Telegram proves itself with in webhook mode; a word of your own"
    )

    @property
    def secrets(self) -> dict[str, SecretStr]:
        """The secrets by name."""
        return {TELEGRAM_TOKEN: self.token, WEBHOOK_SECRET: self.webhook_secret}


class WhatsAppSettings(PlatformSettings, WhatsAppOptions):
    """WhatsApp, with a number of your own."""

    access_token: SecretStr = setting(NO_SECRET, 'the token of a system user, best as `"env:NAME"`')
    app_secret: SecretStr = setting(NO_SECRET, "what Meta's requests are signed with")
    verify_token: SecretStr = setting(
        NO_SECRET, "the word that Meta says when the webhook is set up; of your own choice"
    )

    @property
    def secrets(self) -> dict[str, SecretStr]:
        """The secrets by name."""
        return {ACCESS_TOKEN: self.access_token, APP_SECRET: self.app_secret, VERIFY_TOKEN: self.verify_token}


class BotSettings(Section):
    """One more bot: a second one on a platform, or one of a platform that an installed package connects."""

    platform: Word = Field(description="the platform, as the package names it")
    account: AccountName = setting(DEFAULT_ACCOUNT, "a name of your choice, unique on the platform")
    enabled: bool = setting(True, "whether the bot is connected")
    agent: OptionalSlug = setting(
        "", "the slug of the agent that answers all that is said to this bot; empty: the rules of routing"
    )
    secrets: dict[str, SecretStr] = setting({}, 'its secrets by name, such as `{"token": "env:SECOND_TOKEN"}`')
    options: dict[str, object] = setting({}, "what the platform lets one set, with the names that its section has")


OwnSettings = DiscordSettings | SlackSettings | TelegramSettings | WhatsAppSettings


class ConnectorSettings(Section):
    """Platforms besides the web connector."""

    discord: DiscordSettings = DiscordSettings()
    slack: SlackSettings = SlackSettings()
    telegram: TelegramSettings = TelegramSettings()
    whatsapp: WhatsAppSettings = WhatsAppSettings()
    bots: tuple[BotSettings, ...] = setting((), "further bots")

    @property
    def sections(self) -> dict[str, OwnSettings]:
        """The section of each platform that has one, by its name."""
        return {"discord": self.discord, "slack": self.slack, "telegram": self.telegram, "whatsapp": self.whatsapp}


def unique_bots(connectors: ConnectorSettings) -> ConnectorSettings:
    """Check that no two bots of a platform share a name, and that none is the web connector."""
    names = [(name, section.account) for name, section in connectors.sections.items() if section.enabled]
    repeated = first_repeated([*names, *((bot.platform, bot.account) for bot in connectors.bots if bot.enabled)])
    if repeated is not None:
        raise ValueError(f"two bots have the name {'/'.join(repeated)}; give one of them another account")
    if any(bot.platform == "web" for bot in connectors.bots):
        raise ValueError("the web connector has a section of its own, web; take it out of connectors.bots")
    return connectors
