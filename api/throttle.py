"""Slows down whoever guesses passwords: per address with growing locks, and all together."""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from threading import Lock

from api.errors import TooManyAttempts
from maestro.store.store import Clock

FREE_ATTEMPTS = 5
"""Wrong passwords from one address before the first lock."""
FIRST_LOCK = timedelta(seconds=10)
LONGEST_LOCK = timedelta(minutes=15)
FORGOTTEN_AFTER = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MOST_PER_MINUTE = 100
"""Wrong passwords a minute from everywhere: more come from someone with many addresses."""
MOST_ADDRESSES = 10_000


@dataclass
class _Guesses:
    count: int
    last: datetime
    locked_until: datetime


class Throttle:
    """Counts wrong passwords; safe to share between threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._guesses: dict[str, _Guesses] = {}
        self._recent: deque[datetime] = deque()

    def judge(self, address: str, right: bool) -> None:
        """Take note of a password from this address; raises ``TooManyAttempts`` while none is looked at, right or not.

        Looking and counting are one step: guesses sent at the same time are no way around a lock.
        """
        now, network = self._clock(), _network(address)
        with self._lock:
            known = self._guesses.get(network)
            wait = max(known.locked_until - now if known else timedelta(), self._busy(now))
            if wait > timedelta():
                raise _locked(wait)
            self._guesses.pop(network, None)
            if not right:
                self._count(network, known, now)

    def _count(self, network: str, known: _Guesses | None, now: datetime) -> None:
        """Count a wrong password; from the fifth on each locks the address, twice as long each time."""
        self._recent.append(now)
        count = known.count + 1 if known and now - known.last < FORGOTTEN_AFTER else 1
        self._guesses[network] = _Guesses(count, now, now + _lock_after(count))
        if len(self._guesses) > MOST_ADDRESSES:
            # Insertion order is the order of the last guess, so this forgets the address that was quiet longest.
            del self._guesses[next(iter(self._guesses))]

    def _busy(self, now: datetime) -> timedelta:
        """Return how long nobody's password is looked at, because too many wrong ones came from everywhere."""
        while self._recent and now - self._recent[0] >= MINUTE:
            self._recent.popleft()
        return self._recent[0] + MINUTE - now if len(self._recent) >= MOST_PER_MINUTE else timedelta()


def _locked(wait: timedelta) -> TooManyAttempts:
    error = TooManyAttempts("Too many wrong passwords; wait before the next attempt.")
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
