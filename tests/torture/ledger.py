"""The ledger: what became of each message, counted from what is seen outside of Maestro and from rows that it left."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.torture.plan import Kind, Message

LOST = "lost"
ANSWERED_TWICE = "answered twice"
UNMARKED = "repeated without a mark"
OUT_OF_ORDER = "out of order"
BOUGHT_AGAIN = "held answer bought again"
MISSED = "schedule missed"
DOUBLED = "schedule doubled"
EFFECT_TWICE = "effect of a tool repeated"
LEFT_OPEN = "left open in the store"
ENDED = "process ended by itself"
FIGURES = (
    *(LOST, ANSWERED_TWICE, UNMARKED, OUT_OF_ORDER, BOUGHT_AGAIN, MISSED, DOUBLED),
    *(EFFECT_TWICE, LEFT_OPEN, ENDED),
)
"""What must be 0."""

IN_FLIGHT = "call in flight repeated"
CALL_FAILED = "call failed and made again"
MARKED = "repeated with a mark"
WAITED = "waited for the model"
REFUSED = "start refused and repeated"
ALLOWED = (IN_FLIGHT, CALL_FAILED, MARKED, WAITED, REFUSED)
"""What the promise allows, counted apart."""

Call = tuple[str, int]
"""A model call of a message: the part of its work that it belongs to, and its number there."""
EFFECTS = {("done", 1), ("unknown", 0), ("unknown", 1)}
"""The states of a call of a tool that may not be repeated, each with how often the effect may have happened."""


@dataclass(frozen=True)
class Trace:
    """What one message left behind."""

    jobs: int = 0
    """Jobs that it began, without delegations."""
    calls: Mapping[tuple[str, int, str], int] = field(default_factory=dict)
    """How many attempts at each model call ended in each state."""
    requests: Mapping[Call, int] = field(default_factory=dict)
    """How many requests of each model call arrived at the model."""
    repeats: int = 0
    """Chunks that were sent again, each with a mark on its row."""
    effects: tuple[tuple[str, int], ...] = ()
    """The state of each call of the noting tool, and how often its effect happened."""
    open: int = 0
    """Steps, calls and jobs that did not end."""
    waits: int = 0
    """How often its lane was released because no account could answer."""


@dataclass(frozen=True)
class LaneTrace:
    """What one lane left behind; ``messages`` are in the order in which Maestro accepted them."""

    messages: Sequence[Message]
    words: Sequence[str]
    """What arrived at the other end, word by word, repeats included."""
    traces: Mapping[str, Trace]
    asked: Sequence[str] = ()
    """The ids of messages in the order in which the model was asked about them."""
    ordered: bool = True
    repeatable: bool = False
    """Whether its platform cannot recognise a repeat, so that a marked one is allowed."""


@dataclass
class Ledger:
    """The figures of some messages; ``faults`` says of each that must be 0 whose it is."""

    figures: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, figure: str, message: str, count: int = 1, detail: str = "") -> None:
        """Count something of a message."""
        if count > 0:
            self.figures[figure] += count
            if figure not in ALLOWED:
                self.faults.append(f"{message} {figure}{f': {detail}' if detail else ''}")

    @classmethod
    def of(cls, lanes: Sequence[LaneTrace], crashes: int) -> "Ledger":
        """Return the ledger of these lanes, of processes that were disturbed so often."""
        ledger = cls()
        for lane in lanes:
            seen = Counter(lane.words)
            for message in lane.messages:
                trace = lane.traces.get(message.id, Trace())
                ledger._count_answer(lane, message, trace, seen)
                ledger._count_calls(message, trace, crashes)
                ledger._count_rest(message, trace)
            for message_id in _overtaken(lane):
                ledger.add(OUT_OF_ORDER, message_id, detail=" ".join(_marks(lane)))
        return ledger

    def _count_answer(self, lane: LaneTrace, message: Message, trace: Trace, seen: Counter[str]) -> None:
        scheduled = message.kind is Kind.SCHEDULED
        missing = [mark for mark in message.marks if not seen[mark]]
        self.add(MISSED if scheduled else LOST, message.id, bool(missing), f"without {' '.join(missing)}")
        more = sum(seen[mark] - 1 for mark in message.marks if seen[mark])
        marked = min(more, trace.repeats * len(message.marks)) if lane.repeatable else 0
        self.add(MARKED, message.id, min(marked, trace.repeats))
        twice = DOUBLED if scheduled else UNMARKED if lane.repeatable else ANSWERED_TWICE
        self.add(twice, message.id, more > marked, f"{more} marks arrived again, {trace.repeats} repeats are marked")
        self.add(DOUBLED if scheduled else ANSWERED_TWICE, message.id, trace.jobs > 1, f"{trace.jobs} jobs")

    def _count_calls(self, message: Message, trace: Trace, crashes: int) -> None:
        for call in sorted({(part, number) for part, number, _ in trace.calls} | set(trace.requests)):
            states = Counter({state: count for (*of, state), count in trace.calls.items() if tuple(of) == call})
            requests, detail = trace.requests.get(call, 0), f"{call[0]} {call[1]}: {dict(states)}"
            again = max(requests - states.total(), states["answered"] - 1, states["interrupted"] - crashes)
            self.add(BOUGHT_AGAIN, message.id, again, f"{detail}, {requests} requests, {crashes} disturbances")
            self.add(IN_FLIGHT, message.id, min(states["interrupted"], crashes))
            self.add(CALL_FAILED, message.id, states["failed"])

    def _count_rest(self, message: Message, trace: Trace) -> None:
        wrong = [effect for effect in trace.effects if effect not in EFFECTS]
        self.add(EFFECT_TWICE, message.id, len(wrong), str(wrong))
        self.add(LEFT_OPEN, message.id, trace.open)
        self.add(WAITED, message.id, bool(trace.waits))


def _marks(lane: LaneTrace) -> list[str]:
    """Return the marks of a lane in the order in which each arrived first."""
    known = {mark for message in lane.messages for mark in message.marks}
    return list(dict.fromkeys(word for word in lane.words if word in known))


def _overtaken(lane: LaneTrace) -> Iterator[str]:
    """Yield the messages before which a later one was answered or asked, and those with a part before an earlier.

    One that waited for the model has released its lane meanwhile (docs/invariants.md: lanes).
    """
    place = {mark: (at, number) for at, one in enumerate(lane.messages) for number, mark in enumerate(one.marks)}
    accepted = {message.id: at for at, message in enumerate(lane.messages)}
    answered = [place[mark] for mark in _marks(lane)]
    waited = {accepted[message.id] for message in lane.messages if lane.traces[message.id].waits}
    groups = [[one for one in answered if one[0] == at] for at in accepted.values()]
    groups += [[one for one in answered if one[0] not in waited]] if lane.ordered else []
    late = {after[0] for group in groups for before, after in pairwise(group) if after < before}
    if lane.ordered:
        asked = [accepted[one] for one in lane.asked if one in accepted and accepted[one] not in waited]
        late |= {after for before, after in pairwise(asked) if after < before}
    yield from (lane.messages[at].id for at in sorted(late))
