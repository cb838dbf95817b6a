"""Questions to people, and their answers (decision 16)."""

from maestro.store.repository import Repository


class Questions(Repository):
    """All questions."""
