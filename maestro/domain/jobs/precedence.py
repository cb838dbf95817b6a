"""Who goes first where work waits: by priority, and among equals each client or channel in its turn.

See docs/decisions.md: priorities.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from maestro.domain.messages import Address
from maestro.domain.precedence import Precedence, behind_people, precedence_of

Item = TypeVar("Item")


class FairLine(Generic[Item]):
    """Those who wait with one priority: each key in its turn, by its weight, and one key's in the order they came.

    Every key has a time at which it is due, in a time of its own that goes on as fast as everybody is served who waits
    (weighted fair queueing). Who is served is due again after 1 / weight. Who begins to wait is due now, not sooner:
    nobody saves up turns, and since time goes on with every turn, nobody waits for ever behind those who come later.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._due: dict[Hashable, float] = {}
        self._lines: dict[Hashable, deque[tuple[float, Item]]] = {}
        self._order: list[tuple[float, int, Hashable]] = []
        """A heap of those who wait, by when they are due and since when they wait."""
        self._weight = 0.0
        self._arrivals = itertools.count()

    def __bool__(self) -> bool:
        """Say whether anybody waits."""
        return bool(self._lines)

    def add(self, key: Hashable, weight: float, item: Item) -> None:
        """Let one wait behind the others of its key."""
        line = self._lines.get(key)
        if line is not None:
            line.append((weight, item))
            return
        self._due[key] = max(self._due.get(key, 0.0), self._now)
        self._begin(key, deque([(weight, item)]))

    def renew(self, waiting: Mapping[Hashable, Iterable[tuple[float, Item]]]) -> None:
        """Take these for all who wait, by their keys; one that waited before goes on waiting."""
        before, self._lines = self._lines.keys(), {}
        self._order, self._weight = [], 0.0
        for key, line in waiting.items():
            if key not in before:
                self._due[key] = max(self._due.get(key, 0.0), self._now)
            self._begin(key, deque(line))
        self._forget()

    def first(self) -> Item | None:
        """Return who is next, if anybody waits."""
        return self._lines[self._order[0][2]][0][1] if self._order else None

    def serve(self) -> Item:
        """Take who is next out of the line: its key has had a turn. Raises ``IndexError`` when nobody waits."""
        key = self._order[0][2]
        self._now += 1 / self._weight
        self._due[key] += 1 / self._lines[key][0][0]
        return self._leave()

    def skip(self) -> None:
        """Take who is next out of the line without a turn, because it waits no more."""
        self._leave()

    def _begin(self, key: Hashable, line: deque[tuple[float, Item]]) -> None:
        self._lines[key] = line
        self._weight += line[0][0]
        heapq.heappush(self._order, (self._due[key], next(self._arrivals), key))

    def _leave(self) -> Item:
        _, _, key = heapq.heappop(self._order)
        line = self._lines.pop(key)
        weight, item = line.popleft()
        self._weight -= weight
        if line:
            self._begin(key, line)
        else:
            self._forget()
        return item

    def _forget(self) -> None:
        """Forget when those are due who neither wait nor had more than their turns: they would be due now."""
        if not self._lines:
            self._weight = 0.0  # what subtracting fractions leaves behind must not add up
        if len(self._due) > 2 * len(self._lines) + KEPT:
            waits = self._lines.keys()
            self._due = {key: due for key, due in self._due.items() if key in waits or due > self._now}


KEPT = 100
"""How many keys are remembered that do not wait, before it is looked which can be forgotten."""


class Candidate(NamedTuple):
    """A job whose turn it may be; ``client_id`` is who pays as far as is known, and ``weight`` their weight."""

    id: str
    priority: int
    client_id: int | None
    weight: float | None
    platform: str
    account: str
    channel: str

    @property
    def in_background(self) -> bool:
        """Say whether the jobs of people go first."""
        return behind_people(self.priority)

    @property
    def precedence(self) -> Precedence:
        """How soon it is done."""
        address = Address(platform=self.platform, account=self.account, channel=self.channel)
        return precedence_of(self.priority, self.client_id, self.weight, address)


IN_HAND = 50
"""How many jobs are in hand at most, and wait for Maestro alone, before none of a crowd begins."""


class ClaimOrder:
    """Chooses which jobs begin, and remembers whose turn it is from one look to the next.

    At most ``background`` jobs that give way to people run at once. Without ``fair``, first come is first served.
    While ``in_hand`` jobs wait for us, and not for a model or a tool, none of a crowd begins: who is handed on sooner
    than there is time for it only waits where nobody can be let past.
    """

    def __init__(self, *, background: int = 50, fair: bool = True, in_hand: int = IN_HAND) -> None:
        self.background = background
        self.fair = fair
        self.in_hand = in_hand
        self._lines: dict[int, FairLine[Candidate]] = {}

    def choose(self, candidates: Iterable[Candidate], at_most: int, room: int) -> list[Candidate]:
        """Return those that begin now, the most urgent first; ``room`` is that for background jobs.

        Where there is no room for these, they wait as before, whether they are among the candidates or not.
        """
        lines = self._lines_of(candidates, room)
        chosen: list[Candidate] = []
        for priority in sorted(lines):
            behind = behind_people(priority)
            most = min(at_most - len(chosen), room) if behind else at_most - len(chosen)
            served = _serve(lines[priority], most)
            room -= len(served) if behind else 0
            chosen.extend(served)
        return chosen

    def _lines_of(self, candidates: Iterable[Candidate], room: int) -> dict[int, FairLine[Candidate]]:
        """Return the lines that are looked at, with those who wait in them now."""
        waiting: dict[int, dict[Hashable, list[tuple[float, Candidate]]]] = {priority: {} for priority in self._lines}
        for one in candidates:
            key = (one.client_id or one[4:]) if self.fair else None
            waiting.setdefault(one.priority, {}).setdefault(key, []).append((one.weight or 1.0, one))
        for priority, found in waiting.items():
            if room > 0 or not behind_people(priority):
                self._lines.setdefault(priority, FairLine()).renew(found)
        return {priority: line for priority, line in self._lines.items() if waiting[priority]}


def _serve(line: FairLine[Candidate], at_most: int) -> list[Candidate]:
    served: list[Candidate] = []
    while line and len(served) < at_most:
        served.append(line.serve())
    return served
