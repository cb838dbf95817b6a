"""The ledger: what became of each message, counted from what is seen outside of Maestro and from rows that it left."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from tests.torture.plan import Kind, Message

LOST = "lost"
ANSWERED_TWICE = "answered twice"
ELSEWHERE = "answered in another channel"
UNMARKED = "repeated without a mark"
OUT_OF_ORDER = "out of order"
BOUGHT_AGAIN = "held answer bought again"
MISSED = "schedule missed"
DOUBLED = "schedule doubled"
EFFECT_TWICE = "effect of a tool repeated"
LEFT_OPEN = "left open in the store"
UNCAUSED = "failed or waited although the model was reachable"
UNACKNOWLEDGED = "sender without an acknowledgement"
ENDED = "process ended by itself"
UNFINISHED = "episode not finished"
FIGURES = (
    *(LOST, ANSWERED_TWICE, UNMARKED, ELSEWHERE, OUT_OF_ORDER, BOUGHT_AGAIN, MISSED, DOUBLED),
    *(EFFECT_TWICE, LEFT_OPEN, UNCAUSED, UNACKNOWLEDGED, ENDED, UNFINISHED),
)
"""What must be 0."""

IN_FLIGHT = "call in flight repeated"
CALL_FAILED = "call failed and made again"
MARKED = "repeated with a mark"
WAITED = "waited for the model"
UNKNOWN_EFFECT = "effect of a tool unknown"
REFUSED = "start refused and repeated"
ALLOWED = (IN_FLIGHT, CALL_FAILED, MARKED, WAITED, UNKNOWN_EFFECT, REFUSED)
"""What the promise allows, counted apart."""

Call = tuple[str, int]
"""A model call of a message: the part of its work that it belongs to, and its number there."""
RECOVERY = 3.0
"""Seconds after a disturbance in which its effects may still end a call: attempts time out after them."""


@dataclass(frozen=True)
class Disturbed:
    """When the processes of an episode were disturbed, and whether the model was cut off."""

    times: Sequence[tuple[float, float]] = ()
    """The begin and the end of each disturbance that may end a model call, in seconds of the monotonic clock."""
    model_cut: bool = False

    def between(self, earlier: float, later: float) -> bool:
        """Return whether a disturbance can have ended a call that was made at one time, before the other."""
        return any(begin <= later and earlier <= end + RECOVERY for begin, end in self.times)


@dataclass(frozen=True)
class Trace:
    """What one message left behind."""

    jobs: int = 0
    """Jobs that it began, without delegations."""
    calls: Mapping[tuple[str, int, str], int] = field(default_factory=dict)
    """How many attempts at each model call ended in each state."""
    requests: Mapping[Call, Sequence[float]] = field(default_factory=dict)
    """When the requests of each model call arrived at the model, in seconds of the monotonic clock."""
    repeats: int = 0
    """Chunks that were sent again, each with a mark on its row."""
    tool_calls: tuple[str, ...] = ()
    """The state of each call of the noting tool, which may not be repeated."""
    effects: int = 0
    """How often the effect of that tool happened."""
    open: tuple[str, ...] = ()
    """Steps and calls that did not end, and jobs that are not completed."""
    waits: int = 0
    """How often its lane was released because no account could answer."""


@dataclass(frozen=True)
class LaneTrace:
    """What one lane left behind; ``messages`` are in the order in which Maestro accepted them."""

    messages: Sequence[Message]
    received_words: Sequence[str]
    """What arrived at the other end, word by word, repeats included."""
    traces: Mapping[str, Trace]
    model_call_order: Sequence[str] = ()
    """The ids of messages in the order in which the model was asked about them."""
    ordered: bool = True
    first_marks: bool = False
    """Whether only the first parts of its answers come in order, because others wait for another agent."""
    platform_lacks_keys: bool = False
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
    def of(cls, lanes: Sequence[LaneTrace], disturbed: Disturbed) -> "Ledger":
        """Return the ledger of these lanes, of processes that were disturbed like this."""
        ledger = cls()
        for lane in lanes:
            seen = Counter(lane.received_words)
            for message in lane.messages:
                trace = lane.traces[message.id]
                ledger._count_answer(lane, message, trace, seen)
                ledger._count_calls(message, trace, disturbed)
                ledger._count_rest(message, trace, disturbed)
            foreign = {mark for other in lanes if other is not lane for one in other.messages for mark in one.marks}
            for mark in sorted(foreign & seen.keys()):
                ledger.add(ELSEWHERE, mark)
            for message_id in find_reordered(lane):
                ledger.add(OUT_OF_ORDER, message_id, detail=" ".join(_marks(lane)))
        return ledger

    def _count_answer(self, lane: LaneTrace, message: Message, trace: Trace, seen: Counter[str]) -> None:
        scheduled = message.kind is Kind.SCHEDULED
        missing = [mark for mark in message.marks if not seen[mark]]
        self.add(MISSED if scheduled else LOST, message.id, bool(missing), f"without {' '.join(missing)}")
        more = sum(seen[mark] - 1 for mark in message.marks if seen[mark])
        marked = min(more, trace.repeats * len(message.marks)) if lane.platform_lacks_keys else 0
        self.add(MARKED, message.id, min(marked, trace.repeats))
        twice = DOUBLED if scheduled else UNMARKED if lane.platform_lacks_keys else ANSWERED_TWICE
        self.add(twice, message.id, more > marked, f"{more} marks arrived again, {trace.repeats} repeats are marked")
        self.add(DOUBLED if scheduled else ANSWERED_TWICE, message.id, trace.jobs > 1, f"{trace.jobs} jobs")

    def _count_calls(self, message: Message, trace: Trace, disturbed: Disturbed) -> None:
        for call in sorted({(part, number) for part, number, _ in trace.calls} | set(trace.requests)):
            states = Counter({state: count for (*of, state), count in trace.calls.items() if tuple(of) == call})
            requests, most = trace.requests.get(call, ()), len(disturbed.times)
            without_cause = sum(not disturbed.between(*times) for times in pairwise(requests))
            again = (
                len(requests) - states.total(),
                states["answered"] - 1,
                states["interrupted"] - most,
                without_cause,
            )
            detail = f"{call[0]} {call[1]}: {dict(states)}, requests at {requests}, disturbances at {disturbed.times}"
            self.add(BOUGHT_AGAIN, message.id, max(again), detail)
            self.add(IN_FLIGHT, message.id, min(states["interrupted"], most))
            self.add(CALL_FAILED if disturbed.model_cut else UNCAUSED, message.id, states["failed"])

    def _count_rest(self, message: Message, trace: Trace, disturbed: Disturbed) -> None:
        if message.kind is Kind.TOOL:
            unknown = trace.tool_calls.count("unknown")
            wrong = trace.effects > 1 or not trace.tool_calls or (trace.effects < 1 and not unknown)
            self.add(EFFECT_TWICE, message.id, wrong, f"{trace.effects} times, calls: {trace.tool_calls}")
            self.add(UNKNOWN_EFFECT, message.id, unknown)
        for one in trace.open:
            self.add(LEFT_OPEN, message.id, detail=one)
        self.add(WAITED if disturbed.model_cut else UNCAUSED, message.id, bool(trace.waits))


def _marks(lane: LaneTrace) -> list[str]:
    """Return the marks of a lane in the order in which each arrived first."""
    known = {mark for message in lane.messages for mark in message.marks}
    return list(dict.fromkeys(word for word in lane.received_words if word in known))


def find_reordered(lane: LaneTrace) -> Iterator[str]:
    """Yield the ids of messages that a later one overtook, and of messages whose parts came in a wrong order.

    A message that waited for the model has released its lane meanwhile, so a later one may overtake it
    (docs/invariants.md: lanes).
    """
    index = {mark: (at, number) for at, one in enumerate(lane.messages) for number, mark in enumerate(one.marks)}
    accepted = {message.id: at for at, message in enumerate(lane.messages)}
    answered = [index[mark] for mark in _marks(lane)]
    late = {after[0] for before, after in combinations(answered, 2) if after < before and before[0] == after[0]}
    if lane.ordered:
        orders = [[at for at, number in answered if not (lane.first_marks and number)]]
        # An agent that waits for another one is asked again later.
        orders += [] if lane.first_marks else [[accepted[one] for one in lane.model_call_order if one in accepted]]
        overtaken = {after for order in orders for before, after in combinations(order, 2) if after < before}
        late |= {at for at in overtaken if not lane.traces[lane.messages[at].id].waits}
    yield from (lane.messages[at].id for at in sorted(late))
