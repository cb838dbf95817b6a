"""What people make of clients: the one set of rules for API, commands and tags."""

from maestro.domain.values import View
from maestro.domain.words import Dollars, Name, OptionalSlug, Weight, Word


class ClientFields(View):
    """What people can edit of a client.

    ``daily_budget_usd`` is in US dollars, 0 for no limit and None for ``budgets.clientDayUsd``; ``plan`` is a word for
    the operator's books; ``slug`` is a second, shorter name, unique, or empty. With ``weight`` 2 the client is given
    twice as much of what many wait for as one with 1 (``jobs.fairness``).
    """

    slug: OptionalSlug = ""
    plan: Word = "per_task"
    daily_budget_usd: Dollars | None = None
    weight: Weight = 1.0


class NewClient(ClientFields):
    """A client to make."""

    name: Name


class ClientChange(ClientFields):
    """What is to be changed of a client: only the fields that are given."""

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that are to be changed."""
        return frozenset(self.model_fields_set)
