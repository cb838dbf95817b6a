"""Pure rules of ``maestro chat``: what is sent, what answers it, and what a terminal shows."""

import re
import unicodedata

from maestro.cli.chat_client import Frame
from maestro.domain.control import control_word

LONG = 12_000
"""Code points from which a message may have another behind it: what is cut off fills two fifths of 32,000 at least."""
KEPT_CONTROLS = "\n\t"


class Answer:
    """Tells which of the messages that arrive answer what was said under a ``clientId``.

    The first chunk of an answer names what it replies to. Its other chunks are the deliveries with the next ids, for
    all of them are stored at once.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._last: int | None = None

    def takes(self, message: Frame) -> bool:
        """Say whether this message is a part of the answer."""
        reply_to = str(message.get("replyTo", ""))
        ours = reply_to.endswith(f":{self._client_id}")
        follows = not reply_to and self._last is not None and message["id"] == self._last + 1
        if ours or follows:
            self._last = message["id"]
        return ours or follows


def may_go_on(message: Frame) -> bool:
    """Say whether a chunk is so long that the answer may have more; nothing in the protocol says which is the last."""
    return len(message["content"]) >= LONG


def addressed(text: str, agent: str) -> str:
    """Return the text with a mention of the agent, if one is to answer; control words stay as they are."""
    if not agent or control_word(text) is not None or re.match(rf"\s*@{re.escape(agent)}(?!\w)", text, re.IGNORECASE):
        return text
    return f"@{agent} {text}"


def harmless(text: str) -> str:
    """Return a text without the control characters by which it could move a terminal's cursor or write elsewhere."""
    return "".join(
        character for character in text if character in KEPT_CONTROLS or unicodedata.category(character) != "Cc"
    )
