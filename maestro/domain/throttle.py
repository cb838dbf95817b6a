"""Throttling of password and key guesses, without a lock-out of callers that know the password.

A correct password is never refused: otherwise guesses from the same address, or from many addresses, would lock its
owner out. But if a correct password were answered at once, an attacker could guess as fast as connections are
made. So after a few wrong guesses every answer to that address is delayed by up to ``LONGEST_DELAY``, also for the
correct password.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_network
from threading import Lock

from maestro.domain.errors import MaestroError
from maestro.domain.network import parse_address

FREE_ATTEMPTS = 5
"""The number of wrong guesses from one address that leads to the first lock."""
FIRST_LOCK = timedelta(seconds=10)
LONGEST_LOCK = timedelta(minutes=15)
ANSWER_INTERVAL = timedelta(seconds=0.25)
"""The time between two answers to an address with too many wrong guesses."""
LONGEST_DELAY = timedelta(seconds=3)
"""The longest delay of an answer: clients of the web connector give up after 5 seconds."""
FORGOTTEN_AFTER = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MOST_PER_MINUTE = 100
"""The most wrong guesses of all addresses that are recorded in a minute: each costs a database write."""


class TooManyAttempts(MaestroError):
    """A wrong guess beyond the limits; ``retry_after`` is the time until wrong guesses are recorded again."""

    public = "Too many attempts."


@dataclass
class _Guesses:
    count: int
    last: datetime
    locked_until: datetime
    next_answer: datetime


class Throttle:
    """A counter of wrong guesses by network address; it is safe to share between threads."""

    def __init__(self, clock: Callable[[], datetime], noun: str) -> None:
        """Start without guesses; ``noun`` is the plural noun for messages, such as "passwords"."""
        self._clock = clock
        self._noun = noun
        self._lock = Lock()
        self._guesses: dict[str, _Guesses] = {}
        self._recent: deque[datetime] = deque()

    def delay(self, address: str) -> timedelta:
        """Return the delay before the next answer to this address, whether its guess is right or wrong."""
        now = self._clock()
        with self._lock:
            guesses = self._recent_guesses(_guesser_network(address), now)
            if guesses is None or guesses.count < FREE_ATTEMPTS:
                return timedelta()
            guesses.next_answer = min(max(guesses.next_answer, now) + ANSWER_INTERVAL, now + LONGEST_DELAY)
            return guesses.next_answer - now

    def record_failure(self, address: str) -> None:
        """Count a wrong guess; raises ``TooManyAttempts`` if the guess should not be recorded in the audit log.

        From the fifth wrong guess on, each one locks the address for further wrong guesses, for twice as long each
        time. Guesses above the limit for all addresses together are counted too: otherwise answers to their addresses
        would never be delayed.
        """
        now, network = self._clock(), _guesser_network(address)
        with self._lock:
            guesses = self._recent_guesses(network, now)
            if guesses is not None and guesses.locked_until > now:
                raise self._too_many_attempts(guesses.locked_until - now)
            count = guesses.count + 1 if guesses else 1
            self._guesses.pop(network, None)
            next_answer = guesses.next_answer if guesses else now
            doublings = min(count - FREE_ATTEMPTS, 32)  # 2**32 is beyond LONGEST_LOCK and does not overflow
            lock: timedelta = min(FIRST_LOCK * 2**doublings, LONGEST_LOCK) if doublings >= 0 else timedelta()
            self._guesses[network] = _Guesses(count, now, now + lock, next_answer)
            if len(self._guesses) > 10_000:
                # The dictionary is ordered by the last guess, so its first address has the oldest guess.
                del self._guesses[next(iter(self._guesses))]
            while self._recent and now - self._recent[0] >= MINUTE:
                self._recent.popleft()
            if len(self._recent) >= MOST_PER_MINUTE:
                raise self._too_many_attempts(self._recent[0] + MINUTE - now)
            self._recent.append(now)

    def _recent_guesses(self, network: str, now: datetime) -> _Guesses | None:
        guesses = self._guesses.get(network)
        return guesses if guesses and now - guesses.last < FORGOTTEN_AFTER else None

    def _too_many_attempts(self, wait: timedelta) -> TooManyAttempts:
        error = TooManyAttempts(f"Too many wrong {self._noun}; wait before the next attempt.")
        error.retry_after = wait
        return error


def _guesser_network(address: str) -> str:
    """Return the network that one attacker controls: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = parse_address(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(ip_network((parsed, 64), strict=False))
    return address
