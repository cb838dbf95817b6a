"""A process of the model: it runs until it waits or reaches the edge of a transaction, and continues or dies there.

Event loop, tasks and store are the real ones. Each process has a stack of its own (a greenlet), so all processes of a
history share one thread, and the same decisions always give the same history.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from typing import Any, Protocol

from greenlet import greenlet  # type: ignore[import-untyped] # it has no types

from maestro.store.store import Store
from maestro.store.transaction import Transaction

BEFORE_COMMIT = "before the commit"


class ProcessKilled(SystemExit):
    """Ends everything that runs in a process; a loop of asyncio lets only this kind of exception pass."""


class _IdleSelector:
    """Has no sockets: where a loop would wait for one, the process rests until it is resumed."""

    def __init__(self, rest: Callable[[], None]) -> None:
        self._rest = rest

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._rest()
        return []


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one process, by the clock of the history."""

    def __init__(self, seconds: Callable[[], float], rest: Callable[[], None]) -> None:
        super().__init__()
        self._seconds = seconds
        self._selector = _IdleSelector(rest)
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        return self._seconds()

    def find_next_timer(self) -> float | None:
        """Return when the next timer is due, None without one."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return min((timer.when() for timer in timers if not timer.cancelled()), default=None)

    @property
    def has_work(self) -> bool:
        """Whether a callback or a timer is due."""
        timer = self.find_next_timer()
        return bool(self._ready) or (timer is not None and timer <= self._seconds())  # type: ignore[attr-defined]

    def _process_events(self, _: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """The loop looks for new callbacks whenever its process is resumed."""


class Process:
    """One process: ``resume`` runs it to its next pause, ``kill`` ends it there, and nothing of it runs after that."""

    def __init__(self, name: str, seconds: Callable[[], float]) -> None:
        self.name = name
        self.alive = True
        self.pause_reason = ""
        """Where in a transaction the process pauses; empty while it waits for events."""
        self.dies_inside = False
        """Whether the process dies in its next writing transaction, with all statements done and none committed."""
        self.loop = ProcessLoop(seconds, self._rest)
        self._failure: BaseException | None = None
        self._stack = greenlet(self._run)

    @property
    def can_run(self) -> bool:
        """Whether ``resume`` would do anything."""
        return self.alive and (bool(self.pause_reason) or self.loop.has_work)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin a task in the process, whose failure ``resume`` raises."""
        self.loop.create_task(work).add_done_callback(self._keep_failure)

    def resume(self) -> None:
        """Run until the process waits or pauses; raise the error of a task that ended with one."""
        self._stack.switch()
        if self._failure is not None:
            raise self._failure

    def pause(self, reason: str) -> None:
        """Let other processes run before this one goes on."""
        self._require_life()
        self.pause_reason = reason
        self._leave_stack()
        self.pause_reason = ""
        self._require_life()

    def die_if_due(self) -> None:
        """End the process from within if ``dies_inside`` says so."""
        self.alive = self.alive and not self.dies_inside
        self._require_life()

    def kill(self) -> None:
        """End the process where it is."""
        self.alive = False
        while self._stack:
            self._stack.switch()
        for task in asyncio.all_tasks(self.loop):
            # Closed while nothing that they still do counts; the garbage collector would report what they raise.
            with suppress(BaseException):
                task.get_coro().close()
        self.loop.close()

    def _keep_failure(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and isinstance(task.exception(), Exception):
            self._failure = task.exception()

    def _run(self) -> None:
        with suppress(ProcessKilled):
            self.loop.run_forever()

    def _rest(self) -> None:
        self._leave_stack()
        self._require_life()

    def _require_life(self) -> None:
        if not self.alive:
            raise ProcessKilled

    def _leave_stack(self) -> None:
        """Go back to the history, with the state of asyncio as if the loop had not been entered.

        ``_leave_task`` and ``_enter_task`` are documented for event loops of others ("Extending asyncio"); since Python
        3.14 they require that this loop is the running one.
        """
        task = asyncio.current_task(self.loop)
        if task is not None:
            asyncio.tasks._leave_task(self.loop, task)
        asyncio._set_running_loop(None)
        self._stack.parent.switch()
        asyncio._set_running_loop(self.loop)
        if task is not None:
            asyncio.tasks._enter_task(self.loop, task)


class CommitWatch(Protocol):
    """Surrounds a writing transaction and checks what it commits; ``claims`` says whether it may claim jobs."""

    def __call__(self, *, claims: bool) -> AbstractContextManager[None]: ...


class PausingStore(Store):
    """The store of a process, which pauses before each writing transaction and after its commit.

    A crash at a statement inside a transaction leaves what a crash before the transaction leaves, so these pauses are
    all the places at which a crash makes a difference.
    """

    def attach(self, process: Process, watch: CommitWatch) -> None:
        """Let this process use the store; ``watch`` surrounds each transaction."""
        self._process, self._watch = process, watch
        self.process = process.name
        self._caches.clear()

    @contextmanager
    def begin(self, *, job: str = "", lane: str = "", claims: bool = False) -> Iterator[Transaction]:
        if self.is_writing:
            with super().begin(job=job, lane=lane, claims=claims) as tx:
                yield tx
            return
        content = "claims" if claims else job or lane or "changes"
        self._process.pause(f"{BEFORE_COMMIT} of {content}")
        with self._watch(claims=claims or bool(lane)), super().begin(job=job, lane=lane, claims=claims) as tx:
            yield tx
            self._process.die_if_due()
        self._process.pause(f"after the commit of {content}")


async def run_inline(work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Stand for ``asyncio.to_thread``: a process that pauses inside of ``work`` pauses as a whole."""
    return copy_context().run(work, *arguments, **named)
