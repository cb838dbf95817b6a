"""An event loop whose time passes only when everything in it waits: a minute takes no time, and always the same."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

Result = TypeVar("Result")
Given = ParamSpec("Given")


class _Jump(selectors.DefaultSelector):
    """Moves the clock on instead of waiting; what has no end at all is waited for in earnest."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own, which begins at 0."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def in_virtual_time(scenario: Coroutine[Any, Any, Result]) -> Result:
    """Run a scenario that touches neither threads nor the network."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)


def virtual_time(test: Callable[Given, Coroutine[Any, Any, None]]) -> Callable[Given, None]:
    """Let a test run in virtual time."""

    @functools.wraps(test)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        in_virtual_time(test(*args, **kwargs))

    return run


def seconds() -> float:
    """Return how much time has passed in the running loop."""
    return asyncio.get_running_loop().time()
