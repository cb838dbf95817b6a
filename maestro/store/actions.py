"""What came of the tags in answers."""

from maestro.store.repository import Repository


class Actions(Repository):
    """All actions."""
