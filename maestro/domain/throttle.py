"""Slows down whoever guesses passwords or keys: per address with growing locks, and all together."""

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
FORGOTTEN_AFTER = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MOST_PER_MINUTE = 100
"""Wrong guesses a minute from everywhere: more come from someone with many addresses."""
MOST_ADDRESSES = 10_000


class TooManyAttempts(MaestroError):
    """Too many wrong passwords or keys; ``retry_after`` says when the next one is looked at."""

    public = "Too many attempts."


@dataclass
class _Guesses:
    count: int
    last: datetime
    locked_until: datetime


class Throttle:
    """Counts wrong guesses; safe to share between threads."""

    def __init__(self, clock: Callable[[], datetime], guessed: str) -> None:
        """``guessed`` names, in the plural, what is guessed: "passwords"."""
        self._clock = clock
        self._guessed = guessed
        self._lock = Lock()
        self._guesses: dict[str, _Guesses] = {}
        self._recent: deque[datetime] = deque()

    def judge(self, address: str, right: bool) -> None:
        """Take note of a guess from this address; raises ``TooManyAttempts`` while none is looked at, right or not.

        Looking and counting are one step: guesses sent at the same time are no way around a lock.
        """
        now, network = self._clock(), _network(address)
        with self._lock:
            known = self._guesses.get(network)
            wait = max(known.locked_until - now if known else timedelta(), self._busy(now))
            if wait > timedelta():
                raise self._locked(wait)
            self._guesses.pop(network, None)
            if not right:
                self._count(network, known, now)

    def _count(self, network: str, known: _Guesses | None, now: datetime) -> None:
        """Count a wrong guess; from the fifth on each locks the address, twice as long each time."""
        self._recent.append(now)
        count = known.count + 1 if known and now - known.last < FORGOTTEN_AFTER else 1
        self._guesses[network] = _Guesses(count, now, now + _lock_after(count))
        if len(self._guesses) > MOST_ADDRESSES:
            # Insertion order is the order of the last guess, so this forgets the address that was quiet longest.
            del self._guesses[next(iter(self._guesses))]

    def _busy(self, now: datetime) -> timedelta:
        """Return how long nobody's guess is looked at, because too many wrong ones came from everywhere."""
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
