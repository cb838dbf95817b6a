"""What can be set of Slack (facts of the platform: `docs/howto/connect-slack.md`)."""

from typing import Literal

from pydantic import Field

from connectors.options import Instance, Options

PLATFORM = "slack"
BOT_TOKEN = "botToken"  # noqa: S105 - its name
APP_TOKEN = "appToken"  # noqa: S105 - its name
SIGNING_SECRET = "signingSecret"  # noqa: S105 - its name


class SlackOptions(Options):
    """What can be set of one Slack app."""

    mode: Literal["socket", "events"] = Field(
        default="socket",
        description="how messages arrive: `socket` needs `appToken` and no address that others can reach, `events` "
        "needs `signingSecret`, and Slack posts to `/platforms/slack/<account>` on the web connector's port",
    )
    pace_seconds: float = Field(
        default=1.0, ge=0, le=60, description="seconds between two messages to one channel; Slack allows one a second"
    )
    history_seconds: float = Field(
        default=1.2,
        ge=0,
        le=600,
        description="seconds between two reads of what was missed; Slack allows 50 a minute, and one a minute to apps "
        "that are distributed outside its marketplace",
    )


def complete(instance: Instance) -> str | None:
    """Say what is missing."""
    options = instance.options
    if not instance.secret(BOT_TOKEN):
        return "botToken is missing; copy the token that begins with xoxb- from the app's page"
    if not isinstance(options, SlackOptions) or options.mode == "socket":
        return None if instance.secret(APP_TOKEN) else 'appToken is missing; make one, or set mode to "events"'
    return None if instance.secret(SIGNING_SECRET) else 'signingSecret is missing; copy it, or set mode to "socket"'
