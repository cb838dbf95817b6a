"""The side door through which somebody hears an answer while the model writes it; requests and answers stay values."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Hear = Callable[[str], None]
"""Takes the next piece of a text; called on the event loop, so it must neither wait nor raise."""

_listener: ContextVar[Hear | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(hear: Hear) -> Iterator[None]:
    """Let every answer that is asked for inside be heard piece by piece, where its account can stream it."""
    token = _listener.set(hear)
    try:
        yield
    finally:
        _listener.reset(token)


def listener() -> Hear | None:
    """Return who wants to hear the answer that is asked for now, None when nobody does."""
    return _listener.get()
