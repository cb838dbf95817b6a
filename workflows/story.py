"""What people see of a job's run in the Temporal Web UI: its details so far, and its search attributes at the end."""

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from maestro.domain.jobs.flow import (
        AnswerOutcome,
        ContextOutcome,
        ConversationOutcome,
        DeliverOutcome,
        ModelOutcome,
        RouteOutcome,
    )

PLATFORM = SearchAttributeKey.for_keyword("Platform")
KIND = SearchAttributeKey.for_keyword("Kind")
CHANNEL = SearchAttributeKey.for_keyword("Channel")
AGENT = SearchAttributeKey.for_keyword("Agent")
CONVERSATION = SearchAttributeKey.for_keyword("Conversation")
OUTCOME = SearchAttributeKey.for_keyword("Outcome")


def told_of(result: object) -> str:
    """Return what people read of the result of a step: words and figures, nothing that anybody said."""
    match result:
        case RouteOutcome():
            return f"{result.action}: {result.reason}"
        case ConversationOutcome():
            return f"conversation {result.conversation_id}"
        case ContextOutcome():
            return f"{result.turns} turns, {result.tokens} tokens"
        case ModelOutcome():
            cost = "" if result.cost_usd is None else f", {result.cost_usd:.6f} USD"
            took = f"{result.input_tokens} tokens in, {result.output_tokens} out{cost}"
            return f"{result.provider}/{result.model}: {took}"
        case AnswerOutcome():
            return "nothing to say" if result.silent else "recorded"
        case DeliverOutcome():
            return f"{result.chunks} sent"
        case _:
            return "done"


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
