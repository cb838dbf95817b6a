"""What was spent and is reserved, by day and scope; reserving and settling are one transaction each."""

from maestro.store.repository import Repository


class Budgets(Repository):
    """Spending, reservations and clients."""
