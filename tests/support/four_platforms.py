"""Discord, Slack, Telegram and WhatsApp side by side: local servers, and what a test does with any of them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from tests.support import discord_server, slack_server, telegram_server, whatsapp_server
from tests.support.discord_server import Channel, DiscordServer, User
from tests.support.slack_server import SlackServer
from tests.support.telegram_server import ADA, TelegramServer
from tests.support.whatsapp_server import WhatsAppServer

PERSON = "491700000001"
"""Ada's number."""
SLACK_ADA, SLACK_DM = "UADA", "DADA"

Options = Mapping[str, object]


class Place(Protocol):
    """One person's conversation with our account on a platform."""

    name: str

    @property
    def options(self) -> Options:
        """Return the section of the platform in a configuration."""
        ...

    async def say(self, text: str) -> None:
        """Let the person write."""
        ...

    def be_silent(self) -> None:
        """Let the platform take our next message and never say so."""
        ...

    def texts(self) -> list[str]:
        """Return what the person got."""
        ...


@dataclass
class OnDiscord:
    """Ada's direct messages on Discord."""

    server: DiscordServer
    ada: User
    channel: Channel
    name = "discord"

    @property
    def options(self) -> Options:
        """Return its section."""
        local = {"baseUrl": self.server.base_url, "gatewayUrl": self.server.gateway_url}
        return {"enabled": True, "token": discord_server.TOKEN, "dmPolicy": "open", **local}

    async def say(self, text: str) -> None:
        """Write to the bot."""
        self.server.say(self.ada, self.channel, text)

    def be_silent(self) -> None:
        """Hold the next answer back."""
        self.server.fail("POST", "messages", discord_server.Fault.held(after=True), channel=self.channel)

    def texts(self) -> list[str]:
        """Return what the bot wrote."""
        return [post.content for post in self.server.posts(self.channel)]


@dataclass
class OnSlack:
    """Ada's direct messages on Slack."""

    server: SlackServer
    user: str = SLACK_ADA
    channel: str = SLACK_DM
    name = "slack"

    @property
    def options(self) -> Options:
        """Return its section."""
        tokens = {"botToken": slack_server.BOT_TOKEN, "appToken": slack_server.APP_TOKEN}
        local = {"baseUrl": self.server.api_url, "paceSeconds": 0, "historySeconds": 0}
        return {"enabled": True, "dmPolicy": "open", **tokens, **local}

    async def say(self, text: str) -> None:
        """Write to the app."""
        await self.server.say(self.channel, self.user, text)

    def be_silent(self) -> None:
        """Say nothing to the next post."""
        self.server.fail("chat.postMessage", slack_server.Fault.silence(stores=True))

    def texts(self) -> list[str]:
        """Return what the app wrote."""
        return [str(post["text"]) for post in self.server.posted(self.channel)]


@dataclass
class OnTelegram:
    """Ada's private chat on Telegram."""

    server: TelegramServer
    user: int = ADA
    name = "telegram"

    @property
    def options(self) -> Options:
        """Return its section."""
        local = {"baseUrl": self.server.root, "paceSeconds": 0, "groupPaceSeconds": 0}
        return {"enabled": True, "token": telegram_server.TOKEN, "dmPolicy": "open", **local}

    async def say(self, text: str) -> None:
        """Write to the bot."""
        await self.server.say(self.user, self.user, text)

    def be_silent(self) -> None:
        """Say nothing to the next message."""
        self.server.fail("sendMessage", telegram_server.Fault.silence(stores=True))

    def texts(self) -> list[str]:
        """Return what the bot wrote."""
        return self.server.texts(self.user)


@dataclass
class OnWhatsApp:
    """Ada's chat on WhatsApp; ``callback`` is where Meta posts."""

    server: WhatsAppServer
    user: str = PERSON
    name = "whatsapp"

    @property
    def options(self) -> Options:
        """Return its section."""
        secrets = {
            "accessToken": whatsapp_server.ACCESS_TOKEN,
            "appSecret": whatsapp_server.APP_SECRET,
            "verifyToken": whatsapp_server.VERIFY_TOKEN,
        }
        local = {"baseUrl": self.server.base_url, "phoneNumberId": whatsapp_server.NUMBER_ID, "pairSeconds": 0}
        return {"enabled": True, "dmPolicy": "open", **secrets, **local}

    async def say(self, text: str) -> None:
        """Write to the number."""
        self.server.say(self.user, text)

    def be_silent(self) -> None:
        """Say nothing to the next message but by webhook."""
        self.server.fail("messages", whatsapp_server.Fault.silence(stores=True))

    def texts(self) -> list[str]:
        """Return what the number wrote."""
        return self.server.texts(self.user)


@dataclass(frozen=True)
class Platforms:
    """The four servers."""

    discord: DiscordServer
    slack: SlackServer
    telegram: TelegramServer
    whatsapp: WhatsAppServer

    def places(self) -> dict[str, Place]:
        """Return the conversation of one person on each platform, by its name."""
        self.slack.workspace.person(SLACK_ADA, "Ada")
        ada = self.discord.user("ada")
        places: tuple[Place, ...] = (
            OnDiscord(self.discord, ada, self.discord.direct(ada)),
            OnSlack(self.slack),
            OnTelegram(self.telegram),
            OnWhatsApp(self.whatsapp),
        )
        return {place.name: place for place in places}


@asynccontextmanager
async def four_servers() -> AsyncIterator[Platforms]:
    """Run the four servers."""
    async with (
        SlackServer.running() as slack,
        TelegramServer.running() as telegram,
        WhatsAppServer.running() as whatsapp,
    ):
        with DiscordServer.running() as discord:
            yield Platforms(discord, slack, telegram, whatsapp)


@asynccontextmanager
async def four_platforms() -> AsyncIterator[dict[str, Place]]:
    """Run the four servers; each place by the name of its platform."""
    async with four_servers() as servers:
        yield servers.places()
