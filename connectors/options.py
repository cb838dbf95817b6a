"""The options of a connector on any platform; quick to import, because every command reads the settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel

from maestro.domain.values import Value, matching

HttpAddress = Annotated[str, matching(r"(|https?://[^\s/]+\S*)", "an address that starts with http:// or https://")]


class Options(Value):
    """The options of a connector except its secrets; each platform adds its own options. JSON names are camelCase."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )

    base_url: HttpAddress = Field(
        default="",
        description="address of another server that speaks the platform's protocol; empty: the platform itself",
    )
    max_media_bytes: int = Field(
        default=25 * 1024**2, ge=1024, le=1024**3, description="size in bytes of the largest file that is downloaded"
    )
    media_hosts: tuple[str, ...] = Field(
        default=(),
        description="further hosts from which files may be downloaded, even at private addresses; needed for a server "
        "of your own in `baseUrl`",
    )


class GroupOptions(Options):
    """The options of platforms with groups."""

    channels: tuple[str, ...] = Field(
        default=(), description="ids of the channels that the bot reads besides direct messages; empty: all"
    )
    require_mention: bool = Field(
        default=True,
        description="whether the bot's `agent` answers in a group only messages that mention the bot or the agent, "
        "that reply to the bot, or that are in a thread in which it takes part; false: every message",
    )


class CatchUpOptions(Options):
    """The options of platforms with catch-up."""

    catch_up_messages: int = Field(
        default=500, ge=0, le=100_000, description="the most missed messages of a channel read after an outage"
    )
    catch_up_hours: float = Field(
        default=24,
        gt=0,
        le=8760,
        description="the greatest age in hours of a missed message that is still read after an outage",
    )


class StreamingOptions(Options):
    """The options of platforms that stream an answer by editing a message."""

    streaming: bool = Field(
        default=False, description="whether an answer is shown while the model writes it, by edits of one message"
    )
    streaming_seconds: float = Field(
        default=1.5, ge=0.2, le=60, description="seconds between two edits of an answer that is being written"
    )

    @property
    def edit_interval(self) -> float:
        """The seconds between two edits, 0 if answers are not streamed."""
        return self.streaming_seconds if self.streaming else 0


class ReactionOptions(Options):
    """The options of platforms with reactions."""

    ack_reaction: str = Field(
        default="",
        max_length=64,
        description="the emoji that the bot adds to a user's message before the answer; empty: no emoji",
    )


class QuoteOptions(Options):
    """The options of platforms on which an answer can quote the user's message."""

    quote_replies: Literal["always", "groups", "never"] = Field(
        default="groups", description="where the first message of an answer quotes the user's message"
    )

    def quotes_message(self, *, in_group: bool) -> bool:
        """Tell whether an answer quotes the user's message."""
        return self.quote_replies == "always" or (in_group and self.quote_replies == "groups")


class AmbiguityOptions(Options):
    """The options of platforms on which a send stays ambiguous when its connection breaks."""

    on_ambiguous: Literal["auto", "resend", "hold"] = Field(
        default="auto",
        description="what happens to a message when it is unknown whether the platform has it: `resend` sends it "
        "again, so it may appear twice; `hold` leaves it, marked as unconfirmed; `auto` resends answers and holds "
        "messages that no user waits for, for example scheduled posts",
    )


@dataclass(frozen=True)
class Instance:
    """One account to connect: its ``secrets`` by name, in plain text, and its options.

    ``token_digest`` distinguishes the account's token from other tokens without revealing it.
    """

    account: str
    secrets: Mapping[str, SecretStr]
    options: Options
    token_digest: str = ""

    def secret(self, name: str) -> str:
        """Return a secret, "" if the secret is not set."""
        return self.secrets.get(name, SecretStr("")).get_secret_value()
