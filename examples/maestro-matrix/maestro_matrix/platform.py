"""Matrix as a platform: the secret and the options of an account; quick to import, because every command does so."""

from typing import Literal

from pydantic import Field

from connectors.options import CatchUpOptions, GroupOptions, Instance, QuoteOptions, ReactionOptions, StreamingOptions
from connectors.platforms import Platform

NAME = "matrix"
ACCESS_TOKEN = "accessToken"  # noqa: S105 - its name


class MatrixOptions(GroupOptions, CatchUpOptions, StreamingOptions, ReactionOptions, QuoteOptions):
    """The options of one Matrix account; ``base_url`` is the address of its homeserver."""

    auto_join: Literal["never", "homeserver", "always"] = Field(
        default="homeserver",
        description="whose invitations are accepted: nobody's, those of people with an account on the same homeserver, "
        "or everybody's",
    )


def complete(instance: Instance) -> str | None:
    """Return a sentence about the missing option and how to set it, None when the options are complete."""
    if not instance.secret(ACCESS_TOKEN):
        return "accessToken is missing; log the bot in at its homeserver, and copy the token that you get"
    if not instance.options.base_url:
        return "baseUrl is missing; name the homeserver, such as https://matrix.example.org"
    return None


platform = Platform(
    name=NAME,
    secrets={ACCESS_TOKEN: "the access token that the homeserver returned when the bot logged in"},
    connector="maestro_matrix.connector:connect",
    options=MatrixOptions,
    complete=complete,
)
