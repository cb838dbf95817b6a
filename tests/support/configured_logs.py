"""The log of this process, set up as a process of the product sets its own up."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import structlog

from maestro.observability.logs import OURS, configure_logs


@contextmanager
def configured_logs(
    style: Literal["text", "json"] = "text", line: Callable[[str], str] = lambda line: line
) -> Iterator[None]:
    """Write the log as a process does for the length of a block."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        configure_logs("info", style, line)
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        for name in OURS:
            logging.getLogger(name).setLevel(logging.NOTSET)
        structlog.reset_defaults()
