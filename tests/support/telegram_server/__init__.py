"""A local Telegram for tests: the Bot API, its file server and its webhooks, with the faults of a bad day.

In a test, on the test's own event loop::

    async with TelegramServer.running() as telegram:
        ...  # point connectors.telegram.baseUrl at telegram.root
        number = await telegram.say(ADA, ADA, "hello")       # its message id; the bot is told of it
        (answer,) = await telegram.posts(ADA)                # what the bot has sent, once there is so much of it
        telegram.fail("sendMessage", Fault.cut_after())
"""

from tests.support.telegram_server.bots import GROWING_TOKEN, HOLDING_TOKEN, OTHER_TOKEN, SECRET, TOKEN, Bot
from tests.support.telegram_server.chats import ADA, ZOE
from tests.support.telegram_server.faults import Fault
from tests.support.telegram_server.server import TelegramServer

__all__ = [
    "ADA",
    "GROWING_TOKEN",
    "HOLDING_TOKEN",
    "OTHER_TOKEN",
    "SECRET",
    "TOKEN",
    "ZOE",
    "Bot",
    "Fault",
    "TelegramServer",
]
