"""A local server that speaks Discord's gateway and REST protocol, so that the real discord.py can be met over its wire.

In a test, sync or async (the server has its own thread and loop)::

    with DiscordServer.running() as discord:
        ...  # set connectors.discord.baseUrl to discord.base_url and gatewayUrl to discord.gateway_url
        ann, square = discord.user("ann"), discord.channel("square")
        discord.say(ann, square, "hello")
        discord.posts(square)          # what the bot sent there
        discord.fail("POST", "messages", Fault(503), times=2)

discord.py keeps the address of the REST interface in a class: one process can talk to one such server at a time.
"""

from tests.support.discord_server.faults import Fault
from tests.support.discord_server.server import DiscordServer
from tests.support.discord_server.world import BOT, TOKEN, Channel, Message, User

__all__ = ["BOT", "TOKEN", "Channel", "DiscordServer", "Fault", "Message", "User"]
