"""Our own rules at work on one text, in this process: linear in its length, and stopped at a deadline."""

import time
from collections.abc import Callable, Iterator
from functools import cache

from maestro.domain.scanning import AllowList, Span, apart
from maestro.scanner.addresses import AddressPlugin
from maestro.scanner.assignments import AssignmentPlugin
from maestro.scanner.blocks import BlockPlugin
from maestro.scanner.folding import BLANKED, Folded, Folder
from maestro.scanner.forms import FormPlugin
from maestro.scanner.headers import HeaderPlugin
from maestro.scanner.plugin import Place, SpanPlugin
from maestro.scanner.providers import BUILDERS
from maestro.scanner.services import SERVICES
from maestro.scanner.tables import TablePlugin
from maestro.scanner.tokens import TokenPlugin, table

WINDOW = 16_384
"""Characters that are looked at together: what a rule does over and over costs no more in a long text."""
OVERLAP = 4_096
"""Characters that two windows share: longer secrets are found by how they begin."""
_ROUNDS = 2
ALLOW_NOTHING = AllowList()


class OutOfTime(Exception):
    """The deadline came before everything was looked at."""

    def __init__(self, found: tuple[Span, ...]) -> None:
        """Keep what was found until then."""
        super().__init__("out of time")
        self.found = found


class Rules:
    """Every rule of ours; built once, asked by any number of threads, with nothing that changes between two texts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare the patterns, which takes some milliseconds."""
        self._clock = clock
        self._folder = Folder()
        self.plugins: tuple[SpanPlugin, ...] = (
            TokenPlugin(table(BUILDERS + SERVICES)),
            FormPlugin(),
            BlockPlugin(),
            AddressPlugin(),
            HeaderPlugin(),
            AssignmentPlugin(),
            TablePlugin(),
        )

    def spans(self, text: str, deadline: float, allow: AllowList = ALLOW_NOTHING) -> tuple[Span, ...]:
        """Return where secrets are that are not allowed; raises OutOfTime when the clock passes the deadline."""
        found: list[Span] = []
        for start in range(0, max(len(text) - OVERLAP, 1), WINDOW - OVERLAP):
            for span in self._in_window(text[start : start + WINDOW], deadline, found):
                place = Span(span.start + start, span.end + start)
                if not allow.covers(text, place):
                    found.append(place)
        return apart(found)

    def _in_window(self, text: str, deadline: float, before: list[Span]) -> Iterator[Span]:
        for reading in self._folder.readings(text):
            for start, end in self._places(reading, deadline, before):
                yield reading.span(start, end)

    def _places(self, reading: Folded, deadline: float, before: list[Span]) -> Iterator[Place]:
        """Look again without what was found: then what is stored has nothing in it that a second scan would find."""
        data = reading.data
        for _ in range(_ROUNDS):
            places: list[Place] = []
            for plugin in self.plugins:
                if self._clock() > deadline:
                    raise OutOfTime(apart(before))
                places += [place for place in plugin.places(data) if place[0] < place[1]]
            if not places:
                return
            yield from places
            data = _without(data, places)


@cache
def shipped() -> Rules:
    """Return the rules of this process: whoever scans here, posts or lines of the log, asks the same ones."""
    return Rules()


def _without(data: bytes, places: list[Place]) -> bytes:
    rest = bytearray(data)
    for start, end in places:
        rest[start:end] = BLANKED * (end - start)
    return bytes(rest)
