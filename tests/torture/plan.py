"""What happens in an episode, all of it from a seed: which messages are sent, and what is done to the processes."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum


class Kind(StrEnum):
    """What a message is answered by; the value is the word of the report."""

    PLAIN = "plain"
    LONG = "long"
    TOOL = "tool"
    STREAMED = "streamed"
    DELEGATED = "delegated"
    WEBHOOK = "webhook"
    SCHEDULED = "scheduled"


class Harm(StrEnum):
    """What is done to a running Maestro; the value is the word of the report."""

    KILL = "kill"
    CRASH = "kill at a named point"
    STOP = "stopped process"
    LOCK = "held lock of the store"
    DISK = "full disk"
    MODEL = "cut connection to the model"
    DATABASE = "cut connection to PostgreSQL"
    TEMPORAL = "cut connection to Temporal"
    CLIENTS = "cut connections of clients"
    UPGRADE = "rolling upgrade"


DEADLY = (Harm.KILL, Harm.CRASH)
"""What counts as a kill."""

MARKS = {Kind.LONG: 12, Kind.STREAMED: 8, Kind.DELEGATED: 2}
"""How many marks the answer to a message has, if not one."""

AGENTS = {Kind.TOOL: "handy", Kind.DELEGATED: "ada"}
"""The agent that answers messages of a kind, if not the first; an agent remembers its own answers."""

DELAYS = (0.0, 0.1, 0.4)
"""Seconds of a model call."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.4
"""Seconds from the release of a message until it is sent."""
AGAIN = 0.25
"""The share of messages that are sent a second time."""
LIFE = 0.8
"""The most seconds between two disturbances."""
IMPATIENT = 0.2
"""The share of disturbances that do not wait until Maestro has recovered from the one before."""
SECONDS = {
    Harm.STOP: (0.2, 4.0),
    Harm.LOCK: (0.2, 2.0),
    Harm.DISK: (0.2, 1.5),
    Harm.MODEL: (0.0, 1.5),
    Harm.TEMPORAL: (0.2, 3.0),
    Harm.DATABASE: (0.2, 3.0),
}
"""How long a disturbance lasts, in seconds, if it lasts."""
NEED_A_START = (Harm.DISK, Harm.UPGRADE)
"""Disturbances of what runs: a process that starts on a full disk may say so and end."""
CRASHES_AT_POINTS = 0.4
"""The share of kills at named points."""
LAST_OCCURRENCE = 3
"""A process dies the first, second or third time that it reaches a point."""


@dataclass(frozen=True)
class Message:
    """A message; ``id`` is in its text and in each request to the model, and its answer consists of marks."""

    id: str
    kind: Kind
    lane: str
    release: int
    """The disturbance with which it is sent, counted from 0."""
    pause: float
    delay: float
    again: bool
    """Whether its sender sends it a second time though it was acknowledged."""

    @property
    def text(self) -> str:
        """What is sent."""
        return f"{self.id} please, @{AGENTS.get(self.kind, 'helper')}"

    @property
    def marks(self) -> tuple[str, ...]:
        """The words by which the parts of its answer are recognised, wherever they arrive."""
        return tuple(f"{self.id}{number}" for number in range(1, 1 + MARKS.get(self.kind, 1)))


@dataclass(frozen=True)
class Disturbance:
    """One disturbance, so many seconds after the one before; ``target`` is a process or a named point."""

    harm: Harm
    target: str
    after: float
    seconds: float
    patient: bool

    def __str__(self) -> str:
        return f"{self.harm.value} {self.target}".strip()


@dataclass(frozen=True)
class Lane:
    """Where messages are sent one after another, and the kinds of them."""

    name: str
    kinds: tuple[Kind, ...]
    most: int = 1


LANES = (
    Lane("web-helper", (Kind.PLAIN, Kind.LONG), 8),
    Lane("web-handy", (Kind.TOOL,), 4),
    Lane("web-ada", (Kind.DELEGATED,), 2),
    Lane("webhook", (Kind.WEBHOOK,), 2),
    Lane("schedule", (Kind.SCHEDULED,), 2),
    Lane("slack", (Kind.STREAMED,), 3),
    Lane("discord", (Kind.STREAMED,), 3),
    Lane("telegram", (Kind.PLAIN,), 3),
    Lane("whatsapp", (Kind.PLAIN,), 3),
)


KNOWN_FIRST = ("discord", "slack")
"""The lanes with a message that is accepted before anything is disturbed.

After an outage both platforms are asked only about channels in which something was heard before
(docs/howto/connect-discord.md).
"""


@dataclass(frozen=True)
class Point:
    """A named point: a lane whose messages pass it, and how often one of them does."""

    name: str
    lane: str
    times: int = 1


@dataclass(frozen=True)
class Menu:
    """What may be done to a layout: its processes, its other disturbances, and its named points."""

    victims: tuple[str, ...]
    harms: Mapping[Harm, tuple[str, ...]]
    """What each of the others may be done to; one empty name where there is only one such thing."""
    points: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Plan:
    """One episode."""

    number: int
    messages: tuple[Message, ...]
    disturbances: tuple[Disturbance, ...]

    @property
    def kills(self) -> int:
        """How many processes it kills."""
        return sum(one.harm in DEADLY for one in self.disturbances)

    def lane(self, name: str) -> list[Message]:
        """Return the messages of a lane in the order in which they are sent."""
        return [message for message in self.messages if message.lane == name]

    @property
    def first_of_known(self) -> list[str]:
        """The ids of the messages that are accepted before anything is disturbed."""
        return [self.lane(lane)[0].id for lane in KNOWN_FIRST if lane in self.lanes]

    @property
    def lanes(self) -> list[str]:
        """The lanes that have messages."""
        return list(dict.fromkeys(message.lane for message in self.messages))

    def first(self, disturbances: int) -> "Plan":
        """Return the same episode with only the first disturbances."""
        return replace(self, disturbances=self.disturbances[:disturbances])

    def without(self, lane: str) -> "Plan":
        """Return the same episode without the messages of a lane."""
        return replace(self, messages=tuple(one for one in self.messages if one.lane != lane))

    def renamed(self, number: int) -> "Plan":
        """Return the same episode under another number, which is in the ids of its messages."""
        ids = {one.id: f"e{number}{one.id[one.id.index('m') :]}" for one in self.messages}
        return Plan(number, tuple(replace(one, id=ids[one.id]) for one in self.messages), self.disturbances)

    def to_json(self) -> str:
        """Return the episode as JSON."""
        return json.dumps(asdict(self))


def plan_episode(seed: int, number: int, kills: int, menu: Menu) -> Plan:
    """Return the episode of this number: the same one whenever seed, menu and code are the same."""
    chance = random.Random(f"{seed}-{number}")
    points = _points(seed, number, int(kills * CRASHES_AT_POINTS), menu.points)
    disturbances = _disturbances(chance, kills, menu, points)
    lanes = {point.name: point.lane for point in points}
    messages = [
        _message(chance, lane, chance.randint(0, len(disturbances)))
        for lane in LANES
        for _ in range(chance.randint(1, lane.most))
    ]
    for place, one in enumerate(disturbances):
        if one.harm is Harm.CRASH:
            (lane,) = [lane for lane in LANES if lane.name == lanes[one.target.partition(" (")[0]]]
            messages.append(_message(chance, lane, place))
    for name in KNOWN_FIRST:
        first = min((one for one in messages if one.lane == name), key=lambda message: message.release)
        messages[messages.index(first)] = replace(first, release=0)
    messages.sort(key=lambda message: message.release)
    return Plan(number, _named(number, messages), tuple(disturbances))


def plan_lane(number: int, lane: Lane) -> Plan:
    """Return an episode in which a lane has a message of each of its kinds, and nothing is disturbed."""
    messages = [Message("", kind, lane.name, 0, 0.0, 0.0, again=False) for kind in lane.kinds]
    return Plan(number, _named(number, messages), ())


def _named(number: int, messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(replace(one, id=f"e{number}m{place}x") for place, one in enumerate(messages))


def _message(chance: random.Random, lane: Lane, release: int) -> Message:
    pause, delay = round(chance.uniform(SHORTEST_PAUSE, LONGEST_PAUSE), 3), chance.choice(DELAYS)
    return Message("", chance.choice(lane.kinds), lane.name, release, pause, delay, again=chance.random() < AGAIN)


def _disturbances(chance: random.Random, kills: int, menu: Menu, points: Sequence[Point]) -> list[Disturbance]:
    chosen = [(Harm.CRASH, f"{one.name} ({chance.randint(1, min(one.times, LAST_OCCURRENCE))})") for one in points]
    chosen += [(Harm.KILL, chance.choice(menu.victims)) for _ in range(kills - len(points))]
    others = [chance.choice(list(menu.harms)) for _ in range(kills // 2)]
    chosen += [(harm, chance.choice(menu.harms[harm])) for harm in others]
    chance.shuffle(chosen)
    return [_disturbance(chance, harm, target) for harm, target in chosen]


def _points(seed: int, number: int, count: int, known: Sequence[Point]) -> list[Point]:
    """Return the named points of an episode: every point has had its turn before one comes again."""
    shuffled = sorted(known, key=lambda point: random.Random(f"{seed}-{point.name}").random())
    return [shuffled[(number * count + turn) % len(shuffled)] for turn in range(count)] if shuffled else []


def _disturbance(chance: random.Random, harm: Harm, target: str) -> Disturbance:
    after, patient = round(chance.uniform(0, LIFE), 3), chance.random() > IMPATIENT or harm in NEED_A_START
    return Disturbance(harm, target, after, round(chance.uniform(*SECONDS.get(harm, (0.0, 0.0))), 3), patient)
