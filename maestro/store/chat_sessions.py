"""The sessions of #maestro (decision 12)."""

from maestro.store.repository import Repository


class ChatSessions(Repository):
    """Opens and ends sessions; at most one is open."""
