"""What people see of a job's run in the Temporal Web UI: its details so far, and its search attributes at the end."""

from temporalio import workflow
from temporalio.common import SearchAttributeKey

PLATFORM = SearchAttributeKey.for_keyword("Platform")
KIND = SearchAttributeKey.for_keyword("Kind")
CHANNEL = SearchAttributeKey.for_keyword("Channel")
AGENT = SearchAttributeKey.for_keyword("Agent")
CONVERSATION = SearchAttributeKey.for_keyword("Conversation")
OUTCOME = SearchAttributeKey.for_keyword("Outcome")


class Story:
    """Ids and words only: nothing that anybody said."""

    def __init__(self) -> None:
        self._found: dict[SearchAttributeKey[str], str] = {}
        self._lines: list[str] = []

    def tell(self, line: str = "", *, agent: str = "", conversation: int = 0) -> None:
        """Add a line to the details, and what the search attributes will say at the end."""
        if agent:
            self._found[AGENT] = agent
        if conversation:
            self._found[CONVERSATION] = str(conversation)
        if line:
            self._lines.append(f"* {line}")
            workflow.set_current_details("\n".join(self._lines))

    def publish(self, outcome: str) -> None:
        """Set the search attributes."""
        found = {**self._found, OUTCOME: outcome}
        workflow.upsert_search_attributes([key.value_set(value) for key, value in found.items()])
