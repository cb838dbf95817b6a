"""The order of work: by priority, then by a fair queue of clients or channels (docs/decisions.md: priorities)."""

import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

from maestro.domain.messages import Address
from maestro.domain.values import Payload

Item = TypeVar("Item")


class Priority:
    """The priorities of jobs, from 1 (first) to 10 (last) (docs/decisions.md: priorities)."""

    OWNER = 1
    CONDUCTOR = 3
    DELEGATION = 4
    MESSAGE = 5
    SCHEDULED = 10


def message_priority(*, from_owner: bool, to_conductor: bool = False) -> int:
    """Return the priority of a message by its sender and, if known, its agent (docs/decisions.md: priorities)."""
    return Priority.OWNER if from_owner else Priority.CONDUCTOR if to_conductor else Priority.MESSAGE


class Precedence(Payload):
    """The rank of a job or call among waiting ones: its priority, then its key and weight in the fair queue.

    ``key`` identifies the paying client, else the channel, as an id or a digest of at most 64 bytes; it is empty if
    there is no fair queue. A key with a ``weight`` of 2 is served twice as often as a key of weight 1.
    """

    priority: int = Priority.MESSAGE
    key: str = ""
    weight: float = 1.0


def is_background_priority(priority: int) -> bool:
    """Return whether jobs of this priority rank behind users' messages; the number of such jobs may be limited."""
    return priority > Priority.MESSAGE


def build_precedence(priority: int, client_id: int | None, weight: float | None, address: Address) -> Precedence:
    """Return the precedence of a job; its key in the fair queue is the paying client, else the channel.

    A channel's name may be a telephone number, so only a digest of it is used. ``weight`` is that of the client, None
    without a client.
    """
    if client_id is not None:
        return Precedence(priority=priority, key=f"client:{client_id}", weight=weight or 1.0)
    channel_key = "\0".join((address.platform, address.account, address.channel))
    digest = blake2b(channel_key.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return Precedence(priority=priority, key=f"channel:{digest}")


class FairQueue(Generic[Item]):
    """A weighted fair queue: it serves keys in proportion to their weights, and the items of one key in order.

    Each key has a due time in virtual time, which advances by 1 / (sum of the weights of waiting keys) with each served
    item. After a key was served, its due time grows by 1 / weight. A key that starts to wait is due now at the
    earliest, so that idle keys gain no advantage; because virtual time always advances, no key waits for ever.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._due: dict[Hashable, float] = {}
        self._items_of: dict[Hashable, deque[tuple[float, Item]]] = {}
        self._order: list[tuple[float, int, Hashable]] = []
        """A heap of the waiting keys, by due time and then by arrival."""
        self._weight = 0.0
        self._arrivals = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._items_of)

    def add_item(self, key: Hashable, weight: float, item: Item) -> None:
        """Add an item behind the other items of its key."""
        items = self._items_of.get(key)
        if items is not None:
            items.append((weight, item))
            return
        self._due[key] = max(self._due.get(key, 0.0), self._now)
        self._enqueue_key(key, deque([(weight, item)]))

    def replace_items(self, waiting: Mapping[Hashable, Iterable[tuple[float, Item]]]) -> None:
        """Replace all items of the queue; keys that were waiting before keep their due times."""
        before, self._items_of = self._items_of.keys(), {}
        self._order, self._weight = [], 0.0
        for key, items in waiting.items():
            if key not in before:
                self._due[key] = max(self._due.get(key, 0.0), self._now)
            self._enqueue_key(key, deque(items))
        self._delete_old_due_times()

    def peek_item(self) -> Item | None:
        """Return the next item without removing it, None if the queue is empty."""
        return self._items_of[self._order[0][2]][0][1] if self._order else None

    def take_item(self) -> Item:
        """Remove and return the next item, and charge its key for it; raises ``IndexError`` if the queue is empty."""
        key = self._order[0][2]
        self._now += 1 / self._weight
        self._due[key] += 1 / self._items_of[key][0][0]
        return self.take_uncharged()

    def take_uncharged(self) -> Item:
        """Remove and return the next item without charging its key, because the item no longer waits."""
        _, _, key = heapq.heappop(self._order)
        items = self._items_of.pop(key)
        weight, item = items.popleft()
        self._weight -= weight
        if items:
            self._enqueue_key(key, items)
        else:
            self._delete_old_due_times()
        return item

    def _enqueue_key(self, key: Hashable, items: deque[tuple[float, Item]]) -> None:
        self._items_of[key] = items
        self._weight += items[0][0]
        heapq.heappush(self._order, (self._due[key], next(self._arrivals), key))

    def _delete_old_due_times(self) -> None:
        """Delete past due times of keys without items, because they no longer affect the order."""
        if not self._items_of:
            self._weight = 0.0  # This resets the rounding errors of earlier subtractions.
        if len(self._due) > 2 * len(self._items_of) + MOST_IDLE_KEYS:
            self._due = {key: due for key, due in self._due.items() if key in self._items_of or due > self._now}


MOST_IDLE_KEYS = 100
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
    def precedence(self) -> Precedence:
        address = Address(platform=self.platform, account=self.account, channel=self.channel)
        return build_precedence(self.priority, self.client_id, self.weight, address)


IN_HAND = 50
"""The most claimed jobs that may wait for Maestro, not for a model or a tool; at this number, claiming pauses."""


class ClaimOrder:
    """The order in which the dispatcher claims jobs; its fair queues persist between calls of ``choose_jobs``.

    Callers run at most ``background`` jobs that rank behind users' messages. Without ``fair``, jobs of one priority are
    claimed first in, first out. ``in_hand`` is the most claimed jobs that may wait for Maestro itself, not for a model
    or a tool: a claimed job keeps its position even if a more urgent job arrives before it can run. ``owner`` is the
    process that claims.
    """

    def __init__(self, *, background: int = 50, fair: bool = True, in_hand: int = IN_HAND, owner: str = "") -> None:
        self.owner = owner
        self.background = background
        self.fair = fair
        self.in_hand = in_hand
        self._queues: dict[int, FairQueue[ClaimCandidate]] = {}

    def choose_jobs(
        self, candidates: Iterable[ClaimCandidate], at_most: int, background_room: int
    ) -> list[ClaimCandidate]:
        """Return up to ``at_most`` jobs to claim, the most urgent first.

        At most ``background_room`` of them are background jobs. Without room for background jobs, their fair queues
        stay unchanged, even if ``candidates`` lacks these jobs.
        """
        waiting: dict[int, dict[Hashable, list[tuple[float, ClaimCandidate]]]] = {
            priority: {} for priority in self._queues
        }
        for job in candidates:
            key = (job.client_id or (job.platform, job.account, job.channel)) if self.fair else None
            waiting.setdefault(job.priority, {}).setdefault(key, []).append((job.weight or 1.0, job))
        chosen: list[ClaimCandidate] = []
        has_room = background_room > 0
        for priority in sorted(waiting):
            background = is_background_priority(priority)
            if background and not has_room:
                continue
            queue = self._queues.setdefault(priority, FairQueue())
            queue.replace_items(waiting[priority])
            while queue and len(chosen) < at_most and (background_room > 0 or not background):
                chosen.append(queue.take_item())
                background_room -= background
        return chosen
