"""What a text becomes on a platform: messages that fit, or the beginning of it and a file with the whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from connectors.base import Connector, Renders
from connectors.splitting import MINIMUM, Measure, chunks, length

MOST_CHUNKS = 6
"""Messages in a row after which a file is easier to read."""
FILENAME = "answer.md"
IN_FILE = f"\n\n… (the whole answer is in {FILENAME})"


@dataclass(frozen=True)
class Piece:
    """The content of one chunk; with a ``filename`` it goes as a file."""

    content: str
    filename: str = ""


def pieces(text: str, connector: Connector) -> Sequence[Piece]:
    """Cut a text for a platform, measured as it is shown there.

    More than six messages become the first one and a file with everything, where the platform takes one that large and
    a message has room to say so.
    """
    able, measure = connector.capabilities, measure_of(connector)
    room = able.max_length - measure(IN_FILE)
    cut = chunks(text, able.max_length, measure)
    first = list(islice(cut, MOST_CHUNKS + 1))
    if len(first) <= MOST_CHUNKS or room < MINIMUM or len(text.encode()) > able.max_file_bytes:
        return [Piece(chunk) for chunk in (*first, *cut)]
    beginning = next(chunks(text, room, measure))
    return [Piece(beginning + IN_FILE), Piece(text, FILENAME)]


def measure_of(connector: Connector) -> Measure:
    """Return how long a platform finds a text of ours."""
    unit = connector.capabilities.unit
    if isinstance(connector, Renders):
        render = connector.render
        return lambda text: length(render(text), unit)
    return lambda text: length(text, unit)
