"""Slack as a platform: the secrets and options of a bot (facts: `docs/howto/connect-slack.md`)."""

from typing import Annotated, Literal

from pydantic import Field

from connectors.options import CatchUpOptions, GroupOptions, Instance, ReactionOptions, StreamingOptions
from connectors.platforms import Platform
from maestro.domain.values import matching

PLATFORM = "slack"
BOT_TOKEN = "botToken"  # noqa: S105 - the name of the option, not a secret
APP_TOKEN = "appToken"  # noqa: S105 - the name of the option, not a secret
SIGNING_SECRET = "signingSecret"  # noqa: S105 - the name of the option, not a secret

EmojiName = Annotated[
    str, matching(r"(|:?[\w+'-]+(::skin-tone-[2-6])?:?)", "the name of an emoji in Slack, for example eyes")
]


class SlackOptions(GroupOptions, CatchUpOptions, StreamingOptions, ReactionOptions):
    """The options of one Slack app."""

    ack_reaction: EmojiName = Field(
        default="",
        max_length=100,
        description="the name of the emoji, for example `eyes`, that the bot adds at once to a message it will answer, "
        "which needs the scope `reactions:write`; empty: none",
    )
    mode: Literal["socket", "events"] = Field(
        default="socket",
        description="how messages arrive: `socket` needs `appToken` and no public address, `events` "
        "needs `signingSecret`, and Slack posts to `/platforms/slack/<account>` on the web connector's port",
    )
    pace_seconds: float = Field(
        default=1.0, ge=0, le=60, description="seconds between two messages to one channel; Slack allows one a second"
    )
    history_seconds: float = Field(
        default=1.2,
        ge=0,
        le=600,
        description="seconds between two reads of missed messages; Slack allows 50 a minute, and one a minute to apps "
        "that are distributed outside its marketplace",
    )


def missing_option(instance: Instance) -> str | None:
    """Return a sentence about the missing option and how to set it, None when the options are complete."""
    options = instance.options
    if not instance.secret(BOT_TOKEN):
        return "botToken is missing; copy the token that begins with xoxb- from the app's page"
    if not isinstance(options, SlackOptions) or options.mode == "socket":
        return None if instance.secret(APP_TOKEN) else 'appToken is missing; create a token, or set mode to "events"'
    return None if instance.secret(SIGNING_SECRET) else 'signingSecret is missing; copy it, or set mode to "socket"'


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
