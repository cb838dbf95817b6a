"""Tool calls: begun before they act, kept with what came of them."""

from maestro.store.repository import Repository


class ToolRuns(Repository):
    """The rows of ``tool_calls``."""
