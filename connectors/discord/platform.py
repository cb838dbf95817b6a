"""Discord's entry in the list of platforms: its secrets, its options and its connector."""

from connectors.discord.config import PLATFORM, TOKEN, DiscordOptions, missing_option
from connectors.platforms import Platform

platform = Platform(
    name=PLATFORM,
    secrets={TOKEN: "the bot's token"},
    connector="connectors.discord.connector:DiscordConnector",
    options=DiscordOptions,
    complete=missing_option,
)
