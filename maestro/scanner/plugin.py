"""The base class of the scanner's plugins for detect-secrets: they find ranges of bytes, not values."""

from abc import abstractmethod
from collections.abc import Generator, Iterator

from detect_secrets.plugins.base import BasePlugin

from maestro.scanner.folding import Folder

ByteRange = tuple[int, int]
"""From the first byte of a secret up to, but without, the byte behind it."""


class SpanPlugin(BasePlugin):
    """A plugin that reads a whole text at once, in time that grows with its length alone, and keeps nothing.

    The library's own interface works too, but returns values only, by which a text cannot be redacted.
    """

    @abstractmethod
    def places(self, data: bytes) -> Iterator[ByteRange]:
        """Return the positions of secrets in folded text; they may overlap."""

    def analyze_string(self, string: str) -> Generator[str, None, None]:
        """Return the values of the secrets in a text."""
        for folded in Folder().readings(string):
            for start, end in self.places(folded.data):
                span = folded.span(start, end)
                yield string[span.start : span.end]
