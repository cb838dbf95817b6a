"""Slows down guesses at passwords and keys, without keeping out a caller who knows the right one.

A caller with the right password is never refused: otherwise guesses from its address, or from many addresses, would
lock it out. An answer that came at once would tell a guess from the right password as fast as connections are made, so
after a few wrong guesses every answer to an address waits, the right one too, for some seconds at most.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from threading import Lock

from maestro.domain.errors import MaestroError

FREE_ATTEMPTS = 5
"""Wrong guesses from one address before the first lock."""
FIRST_LOCK = timedelta(seconds=10)
LONGEST_LOCK = timedelta(minutes=15)
TURN = timedelta(seconds=0.25)
"""Between two answers to an address with too many wrong guesses."""
LONGEST_DELAY = timedelta(seconds=3)
"""However many guesses wait: the right one must come before its sender gives up (5 seconds on the web connector)."""
FORGOTTEN_AFTER = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MOST_PER_MINUTE = 100
"""Wrong guesses a minute that are noted, from everywhere: each costs a write."""
MOST_ADDRESSES = 10_000


class TooManyAttempts(MaestroError):
    """Wrong, as too many before it; ``retry_after`` says when the next wrong one is noted again."""

    public = "Too many attempts."


@dataclass
class _Guesses:
    count: int
    last: datetime
    locked_until: datetime
    turn: datetime


class Throttle:
    """Counts wrong guesses; safe to share between threads."""

    def __init__(self, clock: Callable[[], datetime], guessed: str) -> None:
        """``guessed`` names, in the plural, what is guessed: "passwords"."""
        self._clock = clock
        self._guessed = guessed
        self._lock = Lock()
        self._guesses: dict[str, _Guesses] = {}
        self._recent: deque[datetime] = deque()

    def delay(self, address: str) -> timedelta:
        """Return how long the answer to a guess from this address, right or wrong, waits before it is given."""
        now = self._clock()
        with self._lock:
            known = self._known(_network(address), now)
            if known is None or known.count < FREE_ATTEMPTS:
                return timedelta()
            known.turn = min(max(known.turn, now) + TURN, now + LONGEST_DELAY)
            return known.turn - now

    def refuse(self, address: str) -> None:
        """Count a wrong guess; raises ``TooManyAttempts`` for one that need not be noted.

        From the fifth on each locks the address for wrong ones, twice as long each time. Guesses that are not noted
        because too many came from everywhere count as well: else no answer to their addresses would ever wait.
        """
        now, network = self._clock(), _network(address)
        with self._lock:
            known = self._known(network, now)
            if known is not None and known.locked_until > now:
                raise self._locked(known.locked_until - now)
            count = known.count + 1 if known else 1
            self._guesses.pop(network, None)
            self._guesses[network] = _Guesses(count, now, now + _lock_after(count), known.turn if known else now)
            if len(self._guesses) > MOST_ADDRESSES:
                # Insertion order is the order of the last guess, so this forgets the address that was quiet longest.
                del self._guesses[next(iter(self._guesses))]
            busy = self._busy(now)
            if busy > timedelta():
                raise self._locked(busy)
            self._recent.append(now)

    def _known(self, network: str, now: datetime) -> _Guesses | None:
        known = self._guesses.get(network)
        return known if known and now - known.last < FORGOTTEN_AFTER else None

    def _busy(self, now: datetime) -> timedelta:
        """Return how long no wrong guess is noted, because too many came from everywhere."""
        while self._recent and now - self._recent[0] >= MINUTE:
            self._recent.popleft()
        return self._recent[0] + MINUTE - now if len(self._recent) >= MOST_PER_MINUTE else timedelta()

    def _locked(self, wait: timedelta) -> TooManyAttempts:
        error = TooManyAttempts(f"Too many wrong {self._guessed}; wait before the next attempt.")
        error.retry_after = wait
        return error


def _lock_after(count: int) -> timedelta:
    if count < FREE_ATTEMPTS:
        return timedelta()
    doublings = min(count - FREE_ATTEMPTS, 32)  # far beyond the longest lock, and no overflow
    lock: timedelta = FIRST_LOCK * 2**doublings
    return min(lock, LONGEST_LOCK)


def _network(address: str) -> str:
    """Return what one guesser holds: an IPv4 address, or the /64 every IPv6 host can move about in."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(ip_network((parsed, 64), strict=False))
    return address
