"""Who is known to us, who wishes to be, and what was dropped at the door."""

from maestro.store.repository import Repository


class Pairings(Repository):
    """People whom operators let in, and codes."""
