"""Which server discord.py talks to: it keeps the address for the whole process, so all bots of one share it."""

import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from connectors.discord.config import DiscordOptions

BASE, GATEWAY = Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY
VERSION = "/api/v10"

# The library warns of each process that nobody can talk to by voice, which Maestro never wants to.
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False


def point_to(options: DiscordOptions) -> None:
    """Let the library use the configured server, Discord itself where none is; a bare address gets the usual path."""
    base = options.base_url.rstrip("/")
    bare = base and not URL(base).path.strip("/")
    Route.BASE = (f"{base}{VERSION}" if bare else base) or BASE
    DiscordWebSocket.DEFAULT_GATEWAY = URL(options.gateway_url) if options.gateway_url else GATEWAY


async def ask_for_gateway(client: discord.Client, options: DiscordOptions) -> None:
    """Let a server of one's own say where its gateway is, when nobody else does."""
    if options.base_url and not options.gateway_url:
        _, address, _ = await client.http.get_bot_gateway()
        DiscordWebSocket.DEFAULT_GATEWAY = URL(address)
