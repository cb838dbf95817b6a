"""The world of one history: its processes, its clock and all that can happen next."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from unittest import mock

import structlog

from connectors.base import AmbiguousSend, Idempotency, OnAmbiguous
from maestro.domain.agent_chat import HUMAN
from maestro.intake import messages
from maestro.store.jobs.claims import CLAIM_LAPSES
from maestro.store.store import Store
from tests.promise.outside import Call, CallsUnderWay, Platform, Provider, Reply
from tests.promise.process import BEFORE_COMMIT, Process, run_inline
from tests.promise.rows import SharedDatabase
from tests.promise.specification import BrokenPromise, Specification
from tests.promise.temporal import SimulatedTemporal, simulated_workflows
from tests.promise.worker import SimulatedWorker, Surroundings
from tests.support.job_rows import MORNING

CONNECTED, OTHER = "a", "b"
"""The names of the processes; the first runs the connector."""
A_START_TAKES = 0.1
"""Seconds, so that a process is younger than the jobs that it finds."""
CLAIMS_LAPSE = CLAIM_LAPSES.total_seconds() + 1
"""Seconds after which a claim has lapsed."""
MOST_MOVES = 4_000
"""More moves than any history needs to end after its last fault."""
DURABLE = "SELECT 1 FROM inbox WHERE message_id = ?"
SENDING = "SELECT job_id, key FROM deliveries WHERE state = 'sending'"
OPEN = "SELECT id, status FROM queue WHERE status NOT IN ('completed', 'failed', 'cancelled', 'dropped')"
REPEATED_MESSAGE = "a repeated message"
EFFECTS = {
    "a late receipt": "SELECT 1 FROM deliveries WHERE standing = 'sent'",
    "a repeated step": "SELECT 1 FROM job_steps WHERE state = 'interrupted'",
    "a repeated call": "SELECT 1 FROM llm_calls WHERE state = 'interrupted'",
    "a second workflow": "SELECT 1 FROM queue WHERE run > 1",
}
"""Queries that show at the end of a history that a fault had an effect."""


@dataclass(frozen=True)
class Layout:
    """The abilities of the platform, and whether there are two processes."""

    idempotency: Idempotency
    on_ambiguous: OnAmbiguous
    separate: bool


class World:
    """Processes, platform, provider and Temporal of one history; the methods are what can happen."""

    def __init__(self, database: SharedDatabase, layout: Layout) -> None:
        self._database = database
        database.rows.delete_all()
        database.clock.now = MORNING
        database.jobs = 0
        self.seconds = 0.0
        self.events: list[str] = []
        self.effects = Counter[str]()
        self.platform = Platform(layout.idempotency, layout.on_ambiguous)
        self.calls = CallsUnderWay()
        self.temporal = SimulatedTemporal(lambda: self.seconds)
        self.provider = Provider(self.calls)
        self.stalled: set[str] = set()
        self._around = Surroundings(
            self.temporal, self.calls, self.platform, self.provider, layout.separate, self._is_alive
        )
        self.promise = Specification(database.rows, self._around, lambda: self.seconds)
        self._started = 0
        self.workers: dict[str, SimulatedWorker] = {}
        for name in (CONNECTED, OTHER) if layout.separate else (CONNECTED,):
            self._start(name)

    # What users do, and what goes wrong

    def write_message(self, channel: str) -> None:
        """Let a user write."""
        added = self.platform.add_message(channel, self._database.clock.now)
        self._note(f"{added.message.id} in {channel}")

    def post_to_agents(self) -> None:
        """Let a person write in the agents' chat."""
        with Store.begin(self._database.stores[CONNECTED]) as tx:
            tx.chat.add_post(HUMAN, "read this")

    def kill(self, name: str, *, sent: bool) -> None:
        """Kill a process and start it again; ``sent`` says whether its calls under way are carried out."""
        process = self.workers[name].process
        self._note(f"{process.name} dies {process.pause_reason or 'while it waits'}")
        self._restart(name, sent=sent)

    def find_busy(self, name: str) -> str:
        """Return this name if its process can go on, else that of another process that can, else of any."""
        busy = [one for one in (name, *self.workers) if one in self.workers and self.workers[one].process.can_run]
        return (*busy, CONNECTED)[0]

    def find_caller(self, calls: Sequence[Call]) -> str | None:
        """Return the name of the process that makes the oldest of these calls."""
        callers = [call.process for call in calls[:1]]
        return next((name for name, worker in self.workers.items() if worker.process in callers), None)

    def kill_inside(self, name: str) -> None:
        """Let a process die inside its next transaction."""
        self.workers[name].process.dies_inside = True

    def stall(self, name: str, moves: int) -> None:
        """Let a process do nothing for so long that Temporal gives its tasks to others, and for as many moves."""
        self.stalled.add(name)
        process = self.workers[name].process
        self._note(f"{process.name} stalls {process.pause_reason or 'while it waits'}")
        self.temporal.forget_process(process)
        self.pass_time()
        for _ in range(moves):
            self.go_on()
        self.stalled.discard(name)

    def give_up(self, number: int) -> None:
        """Let Temporal count an attempt as lost although its process goes on."""
        under_way = self.temporal.list_under_way()
        if under_way:
            task = under_way[number % len(under_way)]
            self._note(f"Temporal gives up {task}")
            self.temporal.lose_attempt(task)

    def lose_workflows(self) -> None:
        """Let Temporal lose all its workflows."""
        self._note("Temporal loses its workflows")
        self.temporal.forget_workflows()

    def lose_report(self, name: str) -> None:
        """Let the next report of a process to Temporal get lost."""
        self.temporal.lost_reports.add(self.workers[name].process)

    def end_call(self, number: int, reply: Reply) -> None:
        """End a call of the platform or the provider."""
        calls = self.calls.calls
        if calls:
            call = calls[number % len(calls)]
            self._note(f"the reply to a call of {call.process.name} {reply.value}")
            self.calls.end(call, reply)

    @property
    def sends(self) -> list[Call]:
        """The calls of the platform that are under way."""
        return [call for call in self.calls.calls if isinstance(call.lost, AmbiguousSend)]

    @property
    def model_calls(self) -> list[Call]:
        """The calls of the provider that are under way."""
        return [call for call in self.calls.calls if call not in self.sends]

    def lose_receipt(self) -> None:
        """Carry out a send, and let its receipt get lost."""
        for call in self.sends[:1]:
            self._note(f"the receipt for {call.process.name} gets lost")
            self.calls.end(call, Reply.GETS_LOST)

    def report_late(self) -> None:
        """Let the platform report a post whose sender got no receipt."""
        if self.platform.unreported:
            message = self.platform.unreported.pop(0)
            receipt = self.platform.find(message)
            assert receipt is not None
            worker = self.workers[CONNECTED]
            worker.process.spawn(worker.record_report(message.address, message.key, receipt.platform_message_id))

    def dispatch(self, name: str) -> None:
        """Let a dispatcher look for work, up to its claim."""
        worker = self.workers[name]
        worker.process.spawn(worker.start_jobs())
        self.step(name)

    def reconcile(self, name: str) -> None:
        """Let a reconciler compare the store with Temporal, up to its first correction."""
        worker = self.workers[name]
        worker.process.spawn(worker.reconcile())
        self.step(name)

    def pass_time(self) -> None:
        """Go on to the next timer or retry, or until claims have lapsed."""
        timers = [worker.process.loop.find_next_timer() for worker in self.workers.values()]
        due = [*filter(None, timers), *(task.due for task in self.temporal.tasks if task.process is None)]
        later = min((moment for moment in due if moment > self.seconds), default=self.seconds + CLAIMS_LAPSE)
        self._set_clock(later)

    # What goes on by itself

    def step(self, name: str) -> bool:
        """Run a process to its next pause; return false if it has nothing to do."""
        process = self.workers[name].process
        if not process.can_run:
            return False
        self._note(f"{process.name} goes on {process.pause_reason or 'after an event'}")
        process.resume()
        self.promise.raise_problem()
        if not process.alive:
            self._note(f"{process.name} dies inside a transaction")
            self._restart(name, sent=True)
        return True

    def step_to_commit(self, name: str) -> None:
        """Run a process until it is about to commit, or has nothing to do."""
        while self.step(name) and not self.workers[name].process.pause_reason.startswith(BEFORE_COMMIT):
            pass

    def go_on(self) -> bool:
        """Do one thing that is due, as a machine without faults would; return false if nothing is."""
        running = [name for name in self.workers if name not in self.stalled]
        if any(self.step(name) for name in running):
            return True
        processes = {self.workers[name].process for name in running}
        for call in self.calls.calls:
            if call.process in processes:
                self.calls.end(call, Reply.ARRIVES)
                return True
        # In the other order, so that each process has something to do.
        return any(self._begin_work(name) for name in reversed(running))

    def finish(self) -> None:
        """Let everything go on without further faults until every message has its answer, and check the result."""
        self._note("from here on nothing goes wrong")
        self.stalled.clear()
        self.temporal.lost_reports.clear()
        self.temporal.next_start = Reply.ARRIVES
        for worker in self.workers.values():
            worker.process.dies_inside = False
        while self.platform.unreported:
            self.report_late()
        self._go_on_to_the_end()
        self.promise.check_end()
        self.effects.update(effect for effect, query in EFFECTS.items() if self._database.rows.read(query))

    def close(self) -> None:
        """End the processes of the history."""
        for worker in self.workers.values():
            worker.process.kill()

    def _go_on_to_the_end(self) -> None:
        last_look: tuple[float, int] | None = None
        for _ in range(MOST_MOVES):
            now = (self.seconds, self.temporal.started)
            if self.go_on():
                continue
            if self._is_quiet():
                return
            if last_look == now:
                self.pass_time()
                continue
            last_look = now
            for name in self.workers:  # Both look before either claims.
                self.dispatch(name)
            if not self.temporal.tasks:
                self.reconcile(CONNECTED)
        timers = [worker.process.loop.find_next_timer() for worker in self.workers.values()]
        tasks, calls = [str(task) for task in self.temporal.tasks], len(self.calls.calls)
        raise BrokenPromise(f"jobs {self._database.rows.read(OPEN)}, {tasks}, {timers} and {calls} calls do not end")

    def _begin_work(self, name: str) -> bool:
        """Give a process a task of Temporal, or a message that the platform still has."""
        worker = self.workers[name]
        for message in self.platform.messages if worker.runs_connector else ():
            if not message.acknowledged and (message.receiver is None or not message.receiver.alive):
                self.effects[REPEATED_MESSAGE] += message.receiver is not None
                durable = bool(self._database.rows.read(DURABLE, message.message.id))
                self.platform.deliver(message, worker.process, durable=durable)
                worker.process.spawn(worker.receive(message))
                return True
        for task in self.temporal.list_due(worker.queues)[:1]:
            self._note(f"{worker.process.name} begins {task}")
            self.temporal.hand_out(task, worker)
            return True
        return False

    def _is_quiet(self) -> bool:
        """Return whether nothing is open any more."""
        waits = any(worker.process.loop.find_next_timer() is not None for worker in self.workers.values())
        return not (waits or self.calls.calls or self.temporal.tasks or self._database.rows.read(OPEN))

    def _start(self, name: str) -> None:
        self._started += 1
        process, store = Process(f"{name}-{self._started}", lambda: self.seconds), self._database.stores[name]
        store.attach(process, self.promise.checked_commit)
        self.workers[name] = SimulatedWorker(
            process, store, self._around, self._database.folder, runs_connector=name == CONNECTED
        )
        process.resume()

    def _restart(self, name: str, *, sent: bool) -> None:
        """Start a process again after its death, and end what it has left."""
        process = self.workers[name].process
        process.kill()
        self._note_sends_in_doubt(process)
        self.stalled.discard(name)
        self.temporal.forget_process(process)
        self.calls.end_all_of(process, Reply.GETS_LOST if sent else Reply.IS_REFUSAL)
        self._set_clock(self.seconds + A_START_TAKES)
        self._start(name)

    def _note_sends_in_doubt(self, dead: Process) -> None:
        """Note the chunks of which only a dead process knew whether it had sent them."""
        jobs = {task.job for task in self.temporal.list_under_way() if task.process is dead}
        self.platform.in_doubt.update(key for job_id, key in self._database.rows.read(SENDING) if job_id in jobs)

    def _set_clock(self, seconds: float) -> None:
        self._database.clock.now += timedelta(seconds=seconds - self.seconds)
        self.seconds = seconds

    def _is_alive(self, owner: str) -> bool:
        return any(worker.process.name == owner and worker.process.alive for worker in self.workers.values())

    def _note(self, event: str) -> None:
        self.events.append(f"{self.seconds:6.1f} {event}")


@contextmanager
def simulated_time(database: SharedDatabase) -> Iterator[None]:
    """Run the code of threads in its process, and workflows in the simulated Temporal; log nothing."""
    configured = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with (
        simulated_workflows(),
        mock.patch.object(asyncio, "to_thread", run_inline),
        mock.patch.object(messages, "new_job_id", database.next_job_id),
    ):
        yield
    structlog.configure(**configured)
