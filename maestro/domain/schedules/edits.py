"""What people make of heartbeats and crons: the one set of rules for API, commands and tags (decision 14)."""

from typing import Annotated

from pydantic import Field

from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.values import View
from maestro.domain.words import DisplayName, Identifier, Slug, Word


class NewSchedule(View):
    """Something that an agent is to do again and again.

    ``schedule`` is as in ``schedule_texts``, meant in ``timezone``; the ``prompt`` is what the agent is told each time,
    and what it says goes to the channel. Without a ``name`` it is called what it is.
    """

    agent: Slug
    name: DisplayName = ""
    schedule: Annotated[str, Field(max_length=200)]
    timezone: Annotated[str, Field(max_length=64)] = "UTC"
    prompt: Annotated[str, Field(min_length=1, max_length=20_000)]
    platform: Word
    account: Identifier = DEFAULT_ACCOUNT
    channel: Identifier
