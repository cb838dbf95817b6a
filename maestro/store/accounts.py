"""Accounts at model providers and their limits, where every worker sees them (decision 10)."""

from maestro.store.repository import Repository


class Accounts(Repository):
    """All accounts."""
