"""The order of work: by priority, and within one priority by a weighted fair queue of clients or channels.

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
    """The priorities of jobs, from 1 (first) to 10 (last) (docs/decisions.md: priorities)."""

    OWNER = 1
    CONDUCTOR = 3
    DELEGATION = 4
    MESSAGE = 5
    SCHEDULED = 10


def priority_of(*, owner: bool, conductor: bool = False) -> int:
    """Return the priority of a message from its sender and, once routing has decided, from the answering agent.

    See docs/decisions.md: priorities.
    """
    return Priority.OWNER if owner else Priority.CONDUCTOR if conductor else Priority.MESSAGE


class Precedence(Value):
    """The position of work among waiting work: its priority and, within that, its key and weight in the fair queue.

    ``key`` identifies the paying client, else the channel, as an id or a digest of at most 64 bytes; it is empty if
    there is no fair sharing. A key with a ``weight`` of 2 gets twice as much as one of weight 1.
    """

    priority: int = Priority.MESSAGE
    key: str = ""
    weight: float = 1.0

    @property
    def in_background(self) -> bool:
        """Whether the work ranks behind users' messages; its number may be limited in their favour."""
        return behind_people(self.priority)

    @property
    def in_order(self) -> "Precedence":
        """The same priority without fair sharing: first in, first out."""
        return Precedence(priority=self.priority)


def behind_people(priority: int) -> bool:
    """Return whether work of this priority ranks behind users' messages."""
    return priority > Priority.MESSAGE


def precedence_of(priority: int, client_id: int | None, weight: float | None, address: Address) -> Precedence:
    """Return the precedence of a job, shared by the paying client, else by the channel.

    A channel's name may be a telephone number, so only a digest of it is used. ``weight`` is that of the client, None
    without a client.
    """
    if client_id is not None:
        return Precedence(priority=priority, key=f"client:{client_id}", weight=weight or 1.0)
    channel_key = "\0".join((address.platform, address.account, address.channel))
    digest = blake2b(channel_key.encode("utf-8", "surrogatepass"), digest_size=CHANNEL_DIGEST_BYTES).hexdigest()
    return Precedence(priority=priority, key=f"channel:{digest}")


class FairQueue(Generic[Item]):
    """A weighted fair queue: it serves keys in proportion to their weights, and the items of one key in order.

    Each key has a due time in virtual time, which advances by 1 / (sum of the weights of waiting keys) with each served
    item. After a key was served, its due time grows by 1 / weight. A key that starts to wait is due now at the
    earliest, so no key can save up a claim; since virtual time always advances, no key waits for ever behind later
    ones.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._due: dict[Hashable, float] = {}
        self._lines: dict[Hashable, deque[tuple[float, Item]]] = {}
        self._order: list[tuple[float, int, Hashable]] = []
        """A heap of the waiting keys, by due time and then by the time since when they wait."""
        self._weight = 0.0
        self._arrivals = itertools.count()

    def __bool__(self) -> bool:
        """Return whether the queue has items."""
        return bool(self._lines)

    def add(self, key: Hashable, weight: float, item: Item) -> None:
        """Add an item behind the other items of its key."""
        line = self._lines.get(key)
        if line is not None:
            line.append((weight, item))
            return
        self._due[key] = max(self._due.get(key, 0.0), self._now)
        self._enqueue_key(key, deque([(weight, item)]))

    def renew(self, waiting: Mapping[Hashable, Iterable[tuple[float, Item]]]) -> None:
        """Replace all items of the queue; keys that were waiting before keep their due times."""
        before, self._lines = self._lines.keys(), {}
        self._order, self._weight = [], 0.0
        for key, line in waiting.items():
            if key not in before:
                self._due[key] = max(self._due.get(key, 0.0), self._now)
            self._enqueue_key(key, deque(line))
        self._delete_old_due_times()

    def first(self) -> Item | None:
        """Return the next item without removing it, None if the queue is empty."""
        return self._lines[self._order[0][2]][0][1] if self._order else None

    def serve(self) -> Item:
        """Remove and return the next item, and charge its key for it; raises ``IndexError`` if the queue is empty."""
        key = self._order[0][2]
        self._now += 1 / self._weight
        self._due[key] += 1 / self._lines[key][0][0]
        return self._remove_next()

    def skip(self) -> None:
        """Remove the next item without charging its key, because the item no longer waits."""
        self._remove_next()

    def _enqueue_key(self, key: Hashable, line: deque[tuple[float, Item]]) -> None:
        self._lines[key] = line
        self._weight += line[0][0]
        heapq.heappush(self._order, (self._due[key], next(self._arrivals), key))

    def _remove_next(self) -> Item:
        _, _, key = heapq.heappop(self._order)
        line = self._lines.pop(key)
        weight, item = line.popleft()
        self._weight -= weight
        if line:
            self._enqueue_key(key, line)
        else:
            self._delete_old_due_times()
        return item

    def _delete_old_due_times(self) -> None:
        """Delete due times that no longer matter: those of keys without items that are not in the future."""
        if not self._lines:
            self._weight = 0.0  # rounding errors of the subtractions must not add up
        if len(self._due) > 2 * len(self._lines) + KEPT:
            waits = self._lines.keys()
            self._due = {key: due for key, due in self._due.items() if key in waits or due > self._now}


KEPT = 100
"""The number of keys without items above which outdated due times are deleted."""


class ClaimCandidate(NamedTuple):
    """A pending job that may be claimed; ``client_id`` and ``weight`` are those of its paying client, if known."""

    id: str
    priority: int
    client_id: int | None
    weight: float | None
    platform: str
    account: str
    channel: str

    @property
    def in_background(self) -> bool:
        """Whether the job ranks behind users' messages."""
        return behind_people(self.priority)

    @property
    def precedence(self) -> Precedence:
        """The precedence of the job."""
        address = Address(platform=self.platform, account=self.account, channel=self.channel)
        return precedence_of(self.priority, self.client_id, self.weight, address)


IN_HAND = 50
"""The most claimed jobs that may wait for Maestro itself before no further jobs of a crowd are claimed."""


class ClaimOrder:
    """The order in which the dispatcher claims jobs; it keeps the fair queues between two choices.

    Callers run at most ``background`` jobs that rank behind users' messages. Without ``fair``, jobs of one priority are
    claimed first in, first out. ``in_hand`` is the most claimed jobs that may wait for Maestro itself, not for a model
    or a tool: a job claimed earlier than it can run could not be overtaken any more.
    """

    def __init__(self, *, background: int = 50, fair: bool = True, in_hand: int = IN_HAND) -> None:
        self.background = background
        self.fair = fair
        self.in_hand = in_hand
        self._lines: dict[int, FairQueue[ClaimCandidate]] = {}

    def choose(self, candidates: Iterable[ClaimCandidate], at_most: int, room: int) -> list[ClaimCandidate]:
        """Return up to ``at_most`` jobs to claim, the most urgent first, with up to ``room`` background jobs.

        Without room, background jobs keep their positions in the fair queues, whether ``candidates`` has them or not.
        """
        lines = self._updated_queues(candidates, room)
        chosen: list[ClaimCandidate] = []
        for priority in sorted(lines):
            behind = behind_people(priority)
            most = min(at_most - len(chosen), room) if behind else at_most - len(chosen)
            served = _serve_up_to(lines[priority], most)
            room -= len(served) if behind else 0
            chosen.extend(served)
        return chosen

    def _updated_queues(self, candidates: Iterable[ClaimCandidate], room: int) -> dict[int, FairQueue[ClaimCandidate]]:
        """Return the fair queues of the candidates' priorities, updated with the candidates."""
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


def _serve_up_to(line: FairQueue[ClaimCandidate], at_most: int) -> list[ClaimCandidate]:
    served: list[ClaimCandidate] = []
    while line and len(served) < at_most:
        served.append(line.serve())
    return served
