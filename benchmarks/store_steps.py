"""Takes messages through the first steps of the flow, over a large store, and tells how long each step took.

``python -m benchmarks.store_steps <folder> <rounds> <messages>`` builds the store and prints, as JSON, how long that
took, how large it is, and milliseconds of every step of every message, by round. It is a process of its own, so that
nothing else runs in it.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from activities.context import ContextActivities, ContextRules
from activities.conversations import ConversationActivities
from activities.routing import RoutingActivities
from benchmarks.big_store import DIRECT, MENTIONED, PLATFORM, QUESTION, Size, build, channel
from maestro.bootstrap.access import answer_rules, intake_rules
from maestro.bootstrap.live import LiveSettings
from maestro.bootstrap.tools import build_tools
from maestro.domain.agents.agent import MemoryScope
from maestro.domain.jobs.job import StepRef
from maestro.domain.messages import Address, IncomingMessage
from maestro.intake import Intake
from maestro.llm.model_map import model_table
from maestro.settings import Settings
from maestro.store.store import Store

WARM_UP = 100
"""Messages before those that count."""

Step = Callable[[StepRef], Any]


class NoTyping:
    """Shows nobody anything."""

    def start(self, job_id: str, address: Address, seen: Collection[str] = ()) -> bool:  # noqa: ARG002 - a protocol
        """Do nothing."""
        return False

    def stop(self, _job_id: str) -> None:
        """Do nothing."""


@dataclass
class Flow:
    """The steps over one store, and how long each took, in milliseconds."""

    store: Store
    size: Size
    took: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compose the steps as the product does."""
        live = LiveSettings.unchanging(Settings())
        window = model_table().context_window
        rules = ContextRules(window, build_tools(live), MemoryScope.AGENT)
        self._accept = Intake(self.store, live.of(intake_rules), lambda: None).accept
        self._steps: dict[str, Step] = {
            "route": RoutingActivities(self.store, NoTyping(), live.of(answer_rules)).choose_agent,
            "conversation": ConversationActivities(self.store, window).record_message,
            "context": ContextActivities(self.store, lambda: rules).build_context,
        }

    def answer(self, conversation: int) -> None:
        """Take a new message of a conversation up to its prompt."""
        message = self._message(conversation)
        accepted = self._timed("accept", lambda: self._accept(message))
        for name, step in self._steps.items():
            ref = StepRef(job_id=accepted.job_id, step=name)
            with self.store.begin() as tx:
                tx.steps.start(ref, name, 1)
            outcome = self._timed(name, partial(step, ref))
            if name == "conversation" and outcome.conversation_id != conversation:
                raise RuntimeError(f"conversation {conversation} was not found again")

    def _message(self, conversation: int) -> IncomingMessage:
        kind = conversation % 10
        mention = f"@agent-{self.size.agent_of(conversation)} " if kind == MENTIONED else ""
        return IncomingMessage(
            id=f"new-{conversation}",
            address=Address(platform=PLATFORM, channel=channel(conversation)),
            user_id=f"user-{conversation}",
            user_name="Grace",
            content=f"{mention}{QUESTION}",
            sent_at=datetime.now(UTC),
            is_direct=kind == DIRECT,
        )

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        started, spent = time.perf_counter(), time.process_time()
        result = work()
        spent, took = time.process_time() - spent, time.perf_counter() - started
        self.took.setdefault(name, []).append(took * 1000)
        self.took.setdefault(f"{name} CPU", []).append(spent * 1000)
        return result


def rounds_of(store: Store, size: Size, rounds: int, messages: int) -> Iterator[dict[str, list[float]]]:
    """Yield what each round took; no conversation is met twice."""
    everybody = range(1, size.conversations + 1)
    chosen = random.Random(1).sample(everybody, WARM_UP + rounds * messages)  # noqa: S311 the same ones each time
    flow = Flow(store, size)
    for conversation in chosen[:WARM_UP]:
        flow.answer(conversation)
    for number in range(rounds):
        flow.took.clear()
        begin = WARM_UP + number * messages
        for conversation in chosen[begin : begin + messages]:
            flow.answer(conversation)
        yield dict(flow.took)


def measure(folder: Path, rounds: int, messages: int, size: Size) -> dict[str, Any]:
    """Build the store and measure."""
    path, started = folder / "maestro.db", time.perf_counter()
    build(path, size)
    built = time.perf_counter() - started
    store = Store.open(path)
    took = list(rounds_of(store, size, rounds, messages))
    store.close()
    return {"built": built, "bytes": path.stat().st_size, "took": took}


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    folder, rounds, messages = arguments
    print(json.dumps(measure(Path(folder), int(rounds), int(messages), Size())))


if __name__ == "__main__":
    main(sys.argv[1:])
