"""Keeps the values of labels few: each new one is a series that a collector keeps for weeks."""

MOST_WORDS = 100
LONGEST = 80
"""Characters; a name is cut there."""
OTHER = "other"
UNKNOWN = "unknown"


class Vocabulary:
    """The values of one label: the first hundred words that came up; whatever comes later is ``other``."""

    def __init__(self, most: int = MOST_WORDS) -> None:
        self._most = most
        self._words: set[str] = set()

    def word(self, text: str) -> str:
        """Return the value for this text; ``unknown`` for an empty one."""
        word = text[:LONGEST] or UNKNOWN
        if word in self._words or len(self._words) < self._most:
            self._words.add(word)
            return word
        return OTHER
