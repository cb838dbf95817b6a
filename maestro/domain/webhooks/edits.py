"""What people make of webhooks: the one set of rules for API, commands and dashboard."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.texts import storable
from maestro.domain.values import View
from maestro.domain.webhooks.template import LONGEST, checked_prompt
from maestro.domain.webhooks.webhook import ROOT, SignatureScheme
from maestro.domain.words import DisplayName, Identifier, OptionalIdentifier, Slug, Word


def _checked(template: str) -> str:
    return checked_prompt(storable(template), ROOT)


PromptTemplate = Annotated[str, Field(max_length=LONGEST), AfterValidator(_checked)]
PerMinute = Annotated[int, Field(ge=1, le=10_000)]


class WebhookFields(View):
    """What people can change of a webhook.

    The ``agent`` is told ``prompt_template``, with what was sent in the place of ``{{payload.field}}``, and what it
    says goes to the channel. ``per_minute`` is how many deliveries a minute are taken.
    """

    agent: Slug = Field(description="the agent that is told")
    name: DisplayName = Field(default="", description="the name that people see")
    prompt_template: PromptTemplate = Field(description="what it is told, such as 'Build {{payload.id}} failed.'")
    platform: Word = Field(description="where it posts: the platform, such as web or discord")
    account: Identifier = Field(default=DEFAULT_ACCOUNT, description="the account on that platform")
    channel: Identifier = Field(description="where it posts: the platform's id of the channel")
    thread: OptionalIdentifier = Field(default="", description="where it posts: a thread of the channel; '' for none")
    per_minute: PerMinute = Field(default=60, description="deliveries a minute that are taken")
    enabled: bool = True


class NewWebhook(WebhookFields):
    """A webhook to make, reached at ``/hooks/<path>``.

    ``secret`` is what the sender signs with, as it shows it, or ``env:NAME`` or ``file:PATH``, where it stands; without
    one it is made. It is stored encrypted.
    """

    path: Slug
    scheme: SignatureScheme = SignatureScheme.STANDARD
    secret: SecretStr = SecretStr("")


class WebhookChange(View):
    """What is to be changed of a webhook; what is null stays."""

    agent: Slug | None = None
    name: DisplayName | None = None
    prompt_template: PromptTemplate | None = None
    platform: Word | None = None
    account: Identifier | None = None
    channel: Identifier | None = None
    thread: OptionalIdentifier | None = None
    per_minute: PerMinute | None = None
    enabled: bool | None = None

    def fields(self) -> dict[str, object]:
        """Return what is to be changed, by the names of the columns; the agent by its slug."""
        return self.model_dump(by_alias=False, exclude_none=True)


class Rotation(View):
    """The next secret of a webhook, as in ``NewWebhook``; without one it is made."""

    secret: SecretStr = SecretStr("")
