"""Clients as operators see them, on the API and on the command line alike."""

from collections.abc import Mapping, Sequence

from maestro.domain.llm.budgets import Client, Level
from maestro.domain.values import View


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


def client_page(clients: Sequence[Client], levels: Mapping[str, Level], cursor: str | None, limit: int) -> ClientPage:
    """Show up to ``limit`` of all clients, sorted by name; the cursor is the last name of the page before."""
    following = [client for client in clients if cursor is None or client.name > cursor]
    page = tuple(client_view(client, levels[client.name]) for client in following[:limit])
    return ClientPage(items=page, next=page[-1].name if len(following) > limit else None)


def client_view(client: Client, level: Level) -> ClientView:
    """Show a client, with what was spent and is reserved for it today."""
    return ClientView(
        name=client.name,
        slug=client.slug,
        plan=client.plan,
        configured=client.configured,
        daily_budget_usd=client.daily_budget_usd,
        weight=client.weight,
        spent_usd=level.spent_usd,
        reserved_usd=level.reserved_usd,
    )
