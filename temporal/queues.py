"""The task queues: one for everything beside an embedded server, three kinds on a cluster.

See docs/architecture.md: processes and queues.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Queues:
    """Names of task queues; an empty one means that its work is done on the main queue.

    Workflows and local steps are on ``main``, model calls on ``llm``. What a connector does is on a queue of its own,
    polled only where the connector runs, whose name begins with ``connectors``.
    """

    main: str
    llm: str = ""
    connectors: str = ""

    def connector(self, platform: str, account: str) -> str:
        """Return the queue of one connector, empty when it has none of its own."""
        return f"{self.connectors}-{platform}-{account}" if self.connectors else ""
