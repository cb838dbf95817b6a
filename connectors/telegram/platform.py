"""Telegram's entry in the list of platforms: its secrets, its options and its connector."""

from connectors.platforms import Platform
from connectors.telegram.config import PLATFORM, TOKEN, WEBHOOK_SECRET, TelegramOptions, missing_option

platform = Platform(
    name=PLATFORM,
    secrets={
        TOKEN: "the bot's token, from @BotFather",
        WEBHOOK_SECRET: "the secret that Telegram sends with each webhook request; choose it yourself",
    },
    connector="connectors.telegram.connector:TelegramConnector",
    options=TelegramOptions,
    complete=missing_option,
)
