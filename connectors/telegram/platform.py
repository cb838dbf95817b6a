"""Telegram's entry in the list of platforms: its secrets, options and connector."""

from connectors.platforms import Platform
from connectors.telegram.config import PLATFORM, TOKEN, WEBHOOK_SECRET, TelegramOptions, complete

platform = Platform(
    name=PLATFORM,
    secrets={
        TOKEN: "the bot's token, from @BotFather",
        WEBHOOK_SECRET: "what Telegram proves itself with in webhook mode; a word of your own",
    },
    connector="connectors.telegram.connector:TelegramConnector",
    options=TelegramOptions,
    complete=complete,
)
