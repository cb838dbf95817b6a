"""Tasks that agents gave to other agents."""

from maestro.store.repository import Repository


class Delegations(Repository):
    """Delegation jobs and their delegators."""
