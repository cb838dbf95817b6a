"""Discord as a platform: what its secrets are and where the connector is."""

from connectors.discord.config import PLATFORM, TOKEN, DiscordOptions, complete
from connectors.platforms import Platform

platform = Platform(
    name=PLATFORM,
    secrets={TOKEN: "the bot's token"},
    connector="connectors.discord.connector:DiscordConnector",
    options=DiscordOptions,
    complete=complete,
)
