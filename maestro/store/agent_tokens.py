"""The bearer tokens of agents outside; what is kept of a token cannot be used as one."""

from maestro.store.repository import Repository


class AgentTokens(Repository):
    """All tokens, those that were revoked too."""
