"""WhatsApp as a platform: the secrets and options of a number (facts: `docs/howto/connect-whatsapp.md`)."""

from typing import Annotated

from pydantic import Field

from connectors.options import AmbiguityOptions, Instance, QuoteOptions, ReactionOptions
from connectors.platforms import Platform
from maestro.domain.values import matching

PLATFORM = "whatsapp"
ACCESS_TOKEN = "accessToken"  # noqa: S105 - the name of the option, not a secret
APP_SECRET = "appSecret"  # noqa: S105 - the name of the option, not a secret
VERIFY_TOKEN = "verifyToken"  # noqa: S105 - the name of the option, not a secret

Digits = Annotated[str, matching(r"[0-9]*", "digits only: the id of the phone number, and not the number itself")]
GraphVersion = Annotated[str, matching(r"v[0-9]+\.[0-9]+", "a version, for example v26.0")]


class WhatsAppOptions(ReactionOptions, QuoteOptions, AmbiguityOptions):
    """The options of one number of the WhatsApp Cloud API."""

    phone_number_id: Digits = Field(
        default="", description="the id of the number, from the app's page; not the number itself"
    )
    api_version: GraphVersion = Field(default="v26.0", description="the version of Meta's Graph API")
    pair_seconds: float = Field(
        default=6.0,
        ge=0,
        le=60,
        description="seconds between two messages to one user; WhatsApp allows about one in six seconds",
    )
    status_seconds: float = Field(
        default=60.0,
        ge=0,
        le=600,
        description="seconds to wait for the status of a message after a broken connection, before `onAmbiguous` "
        "applies",
    )
    template: str = Field(
        default="",
        max_length=512,
        description="the name of an approved template with one variable in its body, for messages more than 24 hours "
        "after the user's last message; empty: these messages fail",
    )
    template_language: str = Field(default="en", max_length=16, description="the language code of the template")


def missing_option(instance: Instance) -> str | None:
    """Return a sentence about the missing option and how to set it, None when the options are complete."""
    if not instance.secret(ACCESS_TOKEN):
        return "accessToken is missing; create a token of a system user that may send messages"
    if not instance.secret(APP_SECRET):
        return "appSecret is missing; copy it from the app's basic settings: requests are signed with it"
    if not instance.secret(VERIFY_TOKEN):
        return "verifyToken is missing; choose a word and enter the same one on the app's webhook page"
    options = instance.options
    if not isinstance(options, WhatsAppOptions) or not options.phone_number_id:
        return "phoneNumberId is missing; copy it from the app's page, below the number"
    return None


platform = Platform(
    name=PLATFORM,
    secrets={
        ACCESS_TOKEN: "the token of a system user that may send messages",
        APP_SECRET: "the app's secret, with which Meta signs its requests",
        VERIFY_TOKEN: "the word with which Meta verifies the webhook; choose it yourself",
    },
    connector="connectors.whatsapp.connector:WhatsAppConnector",
    options=WhatsAppOptions,
    complete=missing_option,
)
