"""What a person replied to, told before their words: as quoted lines, which can pose as nobody's.

See docs/decisions.md: prompt layers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from maestro.domain.conversations.conversation import Line
from maestro.domain.texts import NAME_CHARS, quoted, quoted_lines

QUOTED_CHARS = 500
"""Characters of a message that are quoted; its beginning says which one is meant."""
FRESH = 4
"""Turns before the question that the model has in mind anyway."""


@dataclass(frozen=True)
class Quote:
    """A message that somebody replied to, and who said it: an empty ``author`` is the agent that is asked.

    ``message_id`` is the answer in a conversation that it is part of, ``inbox_id`` the row of a person's.
    """

    text: str
    author: str = ""
    message_id: int | None = None
    inbox_id: int | None = None

    def is_one_of(self, lines: Iterable[Line]) -> bool:
        """Say whether one of these messages of a conversation is the one that is quoted."""
        return any(self._is(line) for line in lines)

    def _is(self, line: Line) -> bool:
        said = self.inbox_id is not None and line.inbox_id == self.inbox_id
        return said or (self.message_id is not None and line.id == self.message_id)


def told(quote: Quote) -> str:
    """Return what the model reads before the words of who replied."""
    whose = quoted(quote.author, NAME_CHARS) if quote.author else "you"
    text = quote.text.strip()
    cut = text if len(text) <= QUOTED_CHARS else f"{text[: QUOTED_CHARS - 1]}…"
    return f"[In reply to what {whose} said:]\n{quoted_lines(cut)}"
