"""What people make of clients: the one set of rules for API, commands and tags."""

from pydantic import Field

from maestro.domain.values import View
from maestro.domain.words import Dollars, Name, OptionalSlug, Weight, Word


class ClientFields(View):
    """What people can edit of a client.

    ``daily_budget_usd`` is in US dollars, 0 for no limit and None for ``budgets.clientDayUsd``; ``plan`` is a word for
    the operator's books; ``slug`` is a second, shorter name, unique, or empty. With ``weight`` 2 the client is given
    twice as much of what many wait for as one with 1 (``jobs.fairness``).
    """

    slug: OptionalSlug = Field(default="", description="a second, shorter name, unique; '' for none")
    plan: Word = Field(default="per_task", description="how it is billed, a word for your books")
    daily_budget_usd: Dollars | None = Field(default=None, description="US dollars for it a day; 0: no limit")
    weight: Weight = Field(default=1.0, description="its share where many wait, against 1 of the others")


class NewClient(ClientFields):
    """A client to make."""

    name: Name


class ClientChange(ClientFields):
    """What is to be changed of a client: only the fields that are given."""

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that are to be changed."""
        return frozenset(self.model_fields_set)
