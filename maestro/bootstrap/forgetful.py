"""Threads that nobody waits for: a call that hangs, on a dead network disk for example, must not hold up the end."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")


class ForgetfulThreads(ThreadPoolExecutor):
    """An executor for an event loop; each call gets a thread of its own, which does not outlive the process."""

    def submit(self, work: Callable[..., Result], /, *arguments: Any, **named: Any) -> "Future[Result]":
        """Begin."""
        future: Future[Result] = Future()
        Thread(target=_fulfil, args=(future, lambda: work(*arguments, **named)), daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Forget what still runs."""


def _fulfil(future: "Future[Result]", work: Callable[[], Result]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    # Whatever it is, it belongs to who waits for the result.
    except BaseException as error:  # noqa: BLE001
        future.set_exception(error)
    else:
        future.set_result(result)
