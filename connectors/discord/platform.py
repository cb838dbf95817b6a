"""Discord as a platform: the secrets and options of a bot (facts: `docs/howto/connect-discord.md`)."""

from typing import Annotated, Literal

from pydantic import Field

from connectors.options import CatchUpOptions, GroupOptions, ReactionOptions, StreamingOptions
from connectors.platforms import Platform
from maestro.domain.values import matching

PLATFORM = "discord"
TOKEN = "token"  # noqa: S105 - the name of the option, not a secret


WebSocketAddress = Annotated[str, matching(r"(|wss?://[^\s/]+\S*)", "an address that starts with ws:// or wss://")]


class DiscordOptions(GroupOptions, CatchUpOptions, StreamingOptions, ReactionOptions):
    """The options of one Discord bot."""

    gateway_url: WebSocketAddress = Field(
        default="",
        description="address of another gateway that speaks Discord's protocol; empty: Discord's own gateway",
    )
    message_content: bool = Field(
        default=True,
        description="whether the intent Message Content is used; without it, only direct messages and mentions can "
        "be read",
    )
    quote_replies: Literal["always", "never"] = Field(
        default="always", description="whether the first message of an answer quotes the user's message"
    )
    slash_commands: bool = Field(default=True, description="whether `/stop`, `/status` and `/new` are registered")


platform = Platform(
    name=PLATFORM,
    secrets={TOKEN: "the bot's token"},
    connector="connectors.discord.connector:DiscordConnector",
    options=DiscordOptions,
    complete=lambda instance: (
        None if instance.secret(TOKEN) else "token is missing; copy the bot's token from Discord's developer portal"
    ),
)
