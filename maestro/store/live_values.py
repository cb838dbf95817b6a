"""What was set at run time, version by version."""

from maestro.store.repository import Repository


class LiveValues(Repository):
    """All versions of the values; the newest one holds."""
