"""Guesses are slow, and nobody who knows the right password is kept out."""

from datetime import timedelta

import pytest

from maestro.domain.network import ANSWER_INTERVAL, FREE_ATTEMPTS, LONGEST_DELAY, Throttle, TooManyAttempts
from tests.unit.connectors.test_web_identity import Clock

NOBODY = timedelta()


def throttle(clock: Clock, wrong: int = FREE_ATTEMPTS) -> Throttle:
    made = Throttle(clock, "passwords")
    for _ in range(wrong):
        made.record_failure("203.0.113.7")
    return made


def test_a_few_wrong_ones_slow_nothing_down() -> None:
    assert throttle(Clock(), FREE_ATTEMPTS - 1).answer_delay("203.0.113.7") == NOBODY


def test_answers_to_an_address_that_guesses_come_one_after_the_other_up_to_a_longest_delay() -> None:
    clock = Clock()
    slowed = throttle(clock)
    assert [slowed.answer_delay("203.0.113.7") for _ in range(3)] == [
        ANSWER_INTERVAL,
        2 * ANSWER_INTERVAL,
        3 * ANSWER_INTERVAL,
    ]
    assert max(slowed.answer_delay("203.0.113.7") for _ in range(1000)) == LONGEST_DELAY
    assert slowed.answer_delay("203.0.113.8") == NOBODY
    clock.now += timedelta(minutes=1)
    assert slowed.answer_delay("203.0.113.7") == ANSWER_INTERVAL
    clock.now += timedelta(hours=1)
    assert slowed.answer_delay("203.0.113.7") == NOBODY


def test_wrong_ones_from_many_addresses_are_noted_a_hundred_times_a_minute() -> None:
    clock = Clock()
    slowed = Throttle(clock, "passwords")
    for number in range(100):
        slowed.record_failure(f"203.0.113.{number}")
    with pytest.raises(TooManyAttempts):
        slowed.record_failure("198.51.100.1")
    assert slowed.answer_delay("198.51.100.1") == NOBODY
    for _ in range(FREE_ATTEMPTS - 1):
        with pytest.raises(TooManyAttempts):
            slowed.record_failure("198.51.100.1")
    assert slowed.answer_delay("198.51.100.1") == ANSWER_INTERVAL, "what is not noted is slowed down like the rest"
    clock.now += timedelta(minutes=1)
    slowed.record_failure("198.51.100.1")
