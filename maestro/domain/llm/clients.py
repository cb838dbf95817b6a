"""Clients as operators edit and see them."""

from collections.abc import Mapping, Sequence

from pydantic import Field

from maestro.domain.fields import Dollars, Name, OptionalSlug, Weight, Word
from maestro.domain.llm.budgets import Client, SpendingLevel
from maestro.domain.values import View


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


class ClientView(View):
    """A client; ``dailyBudgetUsd`` is null without one of its own, ``spentUsd`` and ``reservedUsd`` are today's.

    ``weight`` is its share of what many wait for.
    """

    name: str
    slug: str
    plan: str
    configured: bool
    daily_budget_usd: float | None
    weight: float
    spent_usd: float
    reserved_usd: float


class ClientPage(View):
    """Clients by name; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[ClientView, ...]
    next: str | None


def client_page(
    clients: Sequence[Client], levels: Mapping[str, SpendingLevel], cursor: str | None, limit: int
) -> ClientPage:
    """Show up to ``limit`` of all clients, sorted by name; the cursor is the last name of the page before."""
    following = [client for client in clients if cursor is None or client.name > cursor]
    page = tuple(client_view(client, levels[client.name]) for client in following[:limit])
    return ClientPage(items=page, next=page[-1].name if len(following) > limit else None)


def client_view(client: Client, level: SpendingLevel) -> ClientView:
    """Show a client, with what was spent and is reserved for it today."""
    spending = {"spent_usd": level.spent_usd, "reserved_usd": level.reserved_usd}
    return ClientView.model_validate(client.model_dump(exclude={"id"}) | spending)
