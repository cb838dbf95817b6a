"""Slack's entry in the list of platforms: its secrets, its options and its connector."""

from connectors.platforms import Platform
from connectors.slack.config import APP_TOKEN, BOT_TOKEN, PLATFORM, SIGNING_SECRET, SlackOptions, missing_option

platform = Platform(
    name=PLATFORM,
    secrets={
        BOT_TOKEN: "the bot's token, `xoxb-...`",
        APP_TOKEN: "the token of Socket Mode, `xapp-...`",
        SIGNING_SECRET: "the secret with which Slack signs requests of the Events API",
    },
    connector="connectors.slack.connector:SlackConnector",
    options=SlackOptions,
    complete=missing_option,
)
