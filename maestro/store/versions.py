"""What agents were after each of their edits."""

from maestro.store.repository import Repository


class AgentVersions(Repository):
    """The history of every agent."""
