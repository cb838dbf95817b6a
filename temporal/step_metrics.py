"""How long attempts at steps take, and how they end."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from temporalio.exceptions import ApplicationError, CancelledError

Observe = Callable[[str, str, float], None]
"""Takes the name of a step's activity, the outcome of the attempt and its seconds."""

DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
UNWANTED = frozenset({"Stopped", "JobEnded", "LaneTaken"})
"""Failures that only say that nobody wants the step any more, or not yet."""


@contextmanager
def attempt_timer(name: str, observe: Observe) -> Iterator[None]:
    """Tell how long the block took, whatever ends it; ``name`` is that of the step's activity."""
    began = time.perf_counter()
    outcome = DONE
    try:
        yield
    # An outcome is told of whatever ends an attempt, a cancellation too, and it is raised as it was.
    except BaseException as error:
        outcome = outcome_of(error)
        raise
    finally:
        observe(name, outcome, time.perf_counter() - began)


def outcome_of(error: BaseException | None) -> str:
    """Say how an attempt ended: ``cancelled`` when nobody wanted it any more, which is no failure."""
    if error is None:
        return DONE
    unwanted = isinstance(error, ApplicationError) and error.type in UNWANTED
    return CANCELLED if unwanted or isinstance(error, asyncio.CancelledError | CancelledError) else FAILED
