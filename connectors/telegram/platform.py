"""Telegram as a platform: the secrets and options of a bot (facts: `docs/howto/connect-telegram.md`)."""

import re
from typing import Literal

from pydantic import Field

from connectors.options import (
    AmbiguityOptions,
    GroupOptions,
    HttpAddress,
    Instance,
    QuoteOptions,
    ReactionOptions,
    StreamingOptions,
)
from connectors.platforms import Platform

PLATFORM = "telegram"
TOKEN = "token"  # noqa: S105 - the name of the option, not a secret
WEBHOOK_SECRET = "webhookSecret"  # noqa: S105 - the name of the option, not a secret

TOKEN_FORM = re.compile(r"[0-9]+:[A-Za-z0-9_-]{20,}")
"""The form of a bot's token, checked at the connector's start: the settings may hold only a reference to the token."""
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")


class TelegramOptions(GroupOptions, StreamingOptions, ReactionOptions, QuoteOptions, AmbiguityOptions):
    """The options of one Telegram bot."""

    mode: Literal["polling", "webhook"] = Field(
        default="polling",
        description="how messages arrive: `polling` needs no public address, `webhook` needs "
        "`webhookUrl` and `webhookSecret`",
    )
    webhook_url: HttpAddress = Field(
        default="",
        description="the https address at which Telegram reaches `/platforms/telegram/<account>` on the web "
        "connector's port; Telegram accepts the ports 443, 80, 88 and 8443",
    )
    pace_seconds: float = Field(
        default=1.0, ge=0, le=60, description="seconds between two messages to one user; Telegram allows one a second"
    )
    group_pace_seconds: float = Field(
        default=3.0, ge=0, le=60, description="seconds between two messages to one group; Telegram allows 20 a minute"
    )


def missing_option(instance: Instance) -> str | None:
    """Return a sentence about the missing option and how to set it, None when the options are complete."""
    options = instance.options
    if not instance.secret(TOKEN):
        return "token is missing; ask @BotFather for one"
    if not isinstance(options, TelegramOptions) or options.mode == "polling":
        return None
    if not options.webhook_url:
        return 'webhookUrl is missing; set the https address of this connector, or mode to "polling"'
    if not options.webhook_url.startswith("https://") and not options.base_url:
        return "webhookUrl must begin with https://, because Telegram posts only to https addresses"
    if not _SECRET.fullmatch(instance.secret(WEBHOOK_SECRET)):
        return "webhookSecret is missing or invalid; set 1 to 256 characters of A-Z, a-z, 0-9, _ and -"
    return None


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
