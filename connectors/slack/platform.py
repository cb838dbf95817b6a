"""Slack's entry in the list of platforms: its secrets, options and connector."""

from connectors.platforms import Platform
from connectors.slack.config import APP_TOKEN, BOT_TOKEN, PLATFORM, SIGNING_SECRET, SlackOptions, complete

platform = Platform(
    name=PLATFORM,
    secrets={
        BOT_TOKEN: "the bot's token, `xoxb-...`",
        APP_TOKEN: "the token of Socket Mode, `xapp-...`",
        SIGNING_SECRET: "what requests of the Events API are signed with",
    },
    connector="connectors.slack.connector:SlackConnector",
    options=SlackOptions,
    complete=complete,
)
