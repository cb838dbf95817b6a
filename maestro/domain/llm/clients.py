"""Clients as operators edit and see them."""

from collections.abc import Mapping, Sequence

from pydantic import Field as ValueField

from maestro.domain.fields import Dollars, Name, OptionalSlug, Weight, Word
from maestro.domain.llm.budgets import Client, SpendingLevel
from maestro.domain.values import Page, View


class ClientFields(View):
    """The fields of a client that operators can edit.

    ``daily_budget_usd`` is in US dollars, 0 for no limit and None for ``budgets.clientDayUsd``. ``plan`` is a word for
    the operator's accounting. ``slug`` is a second, shorter name, unique or empty. ``weight`` is the share in the fair
    queue: a client with 2 gets twice as much as one with 1 (``jobs.fairness``).
    """

    slug: OptionalSlug = ValueField(default="", description="a second, shorter name, unique; '' for none")
    plan: Word = ValueField(default="per_task", description="how the client is billed, a word for your accounting")
    daily_budget_usd: Dollars | None = ValueField(default=None, description="US dollars per day; 0: no limit")
    weight: Weight = ValueField(default=1.0, description="the client's share in the fair queue; the default is 1")


class NewClient(ClientFields):
    """A client to create."""

    name: Name


class ClientChange(ClientFields):
    """The changes of a client: only the fields that are given."""


class ClientView(View):
    """A client; ``dailyBudgetUsd`` is null without a budget of its own, ``spentUsd`` and ``reservedUsd`` are today's.

    ``weight`` is the client's share in the fair queue.
    """

    name: str
    slug: str
    plan: str
    configured: bool
    daily_budget_usd: float | None
    weight: float
    spent_usd: float
    reserved_usd: float


class ClientPage(Page[ClientView]):
    """A page of clients, sorted by name."""


def client_page(
    clients: Sequence[Client], levels: Mapping[str, SpendingLevel], cursor: str | None, limit: int
) -> ClientPage:
    """Return a page of up to ``limit`` clients, sorted by name; ``cursor`` is the last name of the previous page."""
    following = [client for client in clients if cursor is None or client.name > cursor]
    page = tuple(client_view(client, levels[client.name]) for client in following[:limit])
    return ClientPage(items=page, next=page[-1].name if len(following) > limit else None)


def client_view(client: Client, level: SpendingLevel) -> ClientView:
    """Return the view of a client, with the spending and reservations of today."""
    return ClientView(**client.model_dump(exclude={"id"}), spent_usd=level.spent_usd, reserved_usd=level.reserved_usd)
