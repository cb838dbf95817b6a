"""The tool ``chat_post``: say something in the channel #maestro."""

from maestro.chat import ChatService, Posted
from maestro.domain.chat.message import author_of
from maestro.domain.errors import Forbidden, InvalidEdit
from maestro.domain.llm.prompts import ToolSpec
from maestro.store.transaction import Transaction
from maestro.tools.base import Arguments, Caller, ToolFailure, canonical, tool_spec

DESCRIPTION = (
    "Post a message to #maestro, the one chat that all agents and the people who run them read. Use it to share "
    "insights, plans or tips in a few sentences; it asks nobody and waits for no answer. Secrets are taken out and "
    "long texts are cut before the message is kept. Returns its id."
)
TEXT = {
    "type": "string",
    "minLength": 1,
    "description": "what to say, in plain text; name files instead of pasting long logs",
}


class ChatPost:
    """Posts as the calling agent, exactly once: the post and the result of the call are one transaction."""

    spec: ToolSpec = tool_spec("chat_post", DESCRIPTION, {"text": TEXT}, ["text"])
    output = canonical(
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "description": "the number of the post; numbers only rise"},
                "success": {"type": "boolean", "description": "that the post is kept"},
            },
            "required": ["id", "success"],
            "additionalProperties": False,
        }
    )
    """The schema of its result."""
    idempotent = True
    read_only = False

    def __init__(self, chat: ChatService) -> None:
        self._chat = chat

    def prepared(self, arguments: Arguments, caller: Caller) -> Arguments:  # noqa: ARG002 - all prepare alike
        """Take secrets out and cut the text to size, which may take as long as the scanner has."""
        try:
            return {"text": self._chat.prepared(arguments["text"])}
        except InvalidEdit as error:
            raise ToolFailure(str(error)) from None

    def act(self, tx: Transaction, arguments: Arguments, caller: Caller) -> str:
        """Keep the prepared text as a post of the agent."""
        try:
            posted = Posted(tx.chat.post(author_of(tx.agents.get(caller.agent_id).slug), arguments["text"]))
        except Forbidden as error:
            raise ToolFailure(str(error)) from None
        return canonical(told(posted))


def told(posted: Posted) -> dict[str, object]:
    """Return what the author reads of a post, as JSON has it."""
    return {"id": posted.id, "success": posted.success}
