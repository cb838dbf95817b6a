"""The base class of the scanner's plugins for detect-secrets: they return byte ranges instead of values."""

from abc import abstractmethod
from collections.abc import Generator, Iterator

from detect_secrets.plugins.base import BasePlugin

from maestro.scanner.folding import TextFolder

ByteRange = tuple[int, int]
"""The range of a secret: the position of its first byte, and the position after its last byte."""


class SpanPlugin(BasePlugin):
    """A plugin that reads a whole text at once, in time linear in the text's length, and stores nothing.

    The interface of detect-secrets works as well, but returns values only, which is not enough to redact a text.
    """

    @abstractmethod
    def find_ranges(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the ranges of secrets in folded text; ranges may overlap."""

    def analyze_string(self, string: str) -> Generator[str, None, None]:
        """Yield the values of the secrets in a text."""
        for folded in TextFolder().folded_forms(string):
            for start, end in self.find_ranges(folded.data):
                span = folded.span(start, end)
                yield string[span.start : span.end]
