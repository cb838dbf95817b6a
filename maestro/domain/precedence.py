"""How soon work is done: by priority, and among equals by a fair queue of clients or channels.

See docs/decisions.md: priorities.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

from maestro.domain.messages import Address
from maestro.domain.values import Value

CHANNEL_DIGEST_BYTES = 12

Item = TypeVar("Item")


class Priority:
    """From 1, soonest, to 10 (docs/decisions.md: priorities)."""

    OWNER = 1
    CONDUCTOR = 3
    DELEGATION = 4
    MESSAGE = 5
    SCHEDULED = 10


def priority_of(*, owner: bool, conductor: bool = False) -> int:
    """Return how soon a message is answered, by who wrote it and, once that is known, who answers.

    See docs/decisions.md: priorities.
    """
    return Priority.OWNER if owner else Priority.CONDUCTOR if conductor else Priority.MESSAGE


class Precedence(Value):
    """How soon work is done: its priority, and the share of those who wait to whom it belongs.

    ``key`` is the client who pays, else the channel, as an id or a digest of at most 64 bytes that says no name; empty
    where all share alike. ``weight`` is how much more than others of weight 1 it is given.
    """

    priority: int = Priority.MESSAGE
    key: str = ""
    weight: float = 1.0

    @property
    def in_background(self) -> bool:
        """Say whether the work of people goes first; room may be kept from it for them."""
        return behind_people(self.priority)

    @property
    def in_order(self) -> "Precedence":
        """The same without fairness: among equals, first come is first served."""
        return Precedence(priority=self.priority)


def behind_people(priority: int) -> bool:
    """Say whether the work of people goes before work of this priority."""
    return priority > Priority.MESSAGE


def precedence_of(priority: int, client_id: int | None, weight: float | None, address: Address) -> Precedence:
    """Return how soon a job is done: its share is that of the client who pays, else of its channel.

    What somebody calls a channel may be a telephone number, so only a digest of it is told. ``weight`` is that of the
    client, None where there is no such client.
    """
    if client_id is not None:
        return Precedence(priority=priority, key=f"client:{client_id}", weight=weight or 1.0)
    place = "\0".join((address.platform, address.account, address.channel))
    digest = blake2b(place.encode("utf-8", "surrogatepass"), digest_size=CHANNEL_DIGEST_BYTES).hexdigest()
    return Precedence(priority=priority, key=f"channel:{digest}")


class FairQueue(Generic[Item]):
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


class ClaimCandidate(NamedTuple):
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
        self._lines: dict[int, FairQueue[ClaimCandidate]] = {}

    def choose(self, candidates: Iterable[ClaimCandidate], at_most: int, room: int) -> list[ClaimCandidate]:
        """Return those that begin now, the most urgent first; ``room`` is that for background jobs.

        Where there is no room for these, they wait as before, whether they are among the candidates or not.
        """
        lines = self._lines_of(candidates, room)
        chosen: list[ClaimCandidate] = []
        for priority in sorted(lines):
            behind = behind_people(priority)
            most = min(at_most - len(chosen), room) if behind else at_most - len(chosen)
            served = _serve(lines[priority], most)
            room -= len(served) if behind else 0
            chosen.extend(served)
        return chosen

    def _lines_of(self, candidates: Iterable[ClaimCandidate], room: int) -> dict[int, FairQueue[ClaimCandidate]]:
        """Return the lines that are looked at, with those who wait in them now."""
        waiting: dict[int, dict[Hashable, list[tuple[float, ClaimCandidate]]]] = {
            priority: {} for priority in self._lines
        }
        for one in candidates:
            key = (one.client_id or one[4:]) if self.fair else None
            waiting.setdefault(one.priority, {}).setdefault(key, []).append((one.weight or 1.0, one))
        for priority, found in waiting.items():
            if room > 0 or not behind_people(priority):
                self._lines.setdefault(priority, FairQueue()).renew(found)
        return {priority: line for priority, line in self._lines.items() if waiting[priority]}


def _serve(line: FairQueue[ClaimCandidate], at_most: int) -> list[ClaimCandidate]:
    served: list[ClaimCandidate] = []
    while line and len(served) < at_most:
        served.append(line.serve())
    return served
