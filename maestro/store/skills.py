"""Skills as they were read from their files."""

from maestro.store.repository import Repository


class Skills(Repository):
    """All skills."""
