"""What model calls took and cost: one row for each request to an account."""

from maestro.store.repository import Repository


class UsageLog(Repository):
    """The rows of ``usage_log``."""
