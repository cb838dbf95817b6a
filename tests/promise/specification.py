"""The promise as a small model of lanes, claims, calls and deliveries, with which each history is compared."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

from connectors.base import Idempotency
from maestro.store.jobs.claims import CLAIM_LAPSES
from tests.promise.rows import Rows
from tests.promise.temporal import LostAttempt
from tests.promise.worker import Surroundings

_LANES = "SELECT id, lane, turn, status, claimed_at, claimed_by FROM queue WHERE status IN ('pending', 'running')"
_CALLS = "SELECT job_id, purpose, number, attempt, state FROM llm_calls"
_JOBS = "SELECT queue.id, status, error FROM queue JOIN inbox ON inbox.id = queue.inbox_id WHERE message_id = ?"
_ANSWERS = "SELECT content FROM llm_calls WHERE job_id = ? AND state = 'answered'"
_CHUNKS = "SELECT key, content, state, repeats FROM deliveries WHERE job_id = ? ORDER BY purpose, seq"
_ORDER = (
    "SELECT deliveries.key, inbox.message_id, deliveries.seq FROM deliveries "
    "JOIN queue ON queue.id = deliveries.job_id JOIN inbox ON inbox.id = queue.inbox_id"
)
_STEPS = "SELECT job_id, step, state FROM job_steps WHERE state IN ('done', 'running')"
_MODEL_CALLS = frozenset({"answer"})
"""The activities that call the provider."""
_SENDS = frozenset({"answer", "deliver"})
"""The activities that send chunks."""
_READ_POSTS = "SELECT chat.id FROM chat, chat_cursor WHERE chat.id <= chat_cursor.last_id"


class BrokenPromise(AssertionError):
    """Something that no history may contain."""


class LaneMember(NamedTuple):
    """A job that is pending or running, as its row has it."""

    job_id: str
    lane: str | None
    turn: int
    status: str
    claimed_at: Any
    claimed_by: str

    @property
    def claim(self) -> tuple[Any, str] | None:
        return None if self.claimed_at is None else (self.claimed_at, self.claimed_by)


class Specification:
    """What may happen in a history, and what must be true at its end."""

    def __init__(self, rows: Rows, around: Surroundings, seconds: Callable[[], float]) -> None:
        self._rows = rows
        self._platform, self._provider, self._temporal = around.platform, around.provider, around.temporal
        self._seconds = seconds
        self._problem = ""
        self._claimed: dict[str, float] = {}
        self._calls: dict[tuple[Any, ...], str] = {}

    def raise_problem(self) -> None:
        """Raise what was found inside a process, where a step that fails is only tried again."""
        if self._problem:
            raise BrokenPromise(self._problem)

    @contextmanager
    def checked_commit(self, *, claims: bool) -> Iterator[None]:
        """Check what the transaction in the block commits; ``claims`` says whether it may claim jobs."""
        before = self._read_lanes() if claims else []
        yield
        if claims:
            self._check_claims(before, self._read_lanes())
        self._check_requests()

    def _check_requests(self) -> None:
        """A request is committed only while the store holds no answer to it; a late answer may come after that."""
        calls = {(*key, attempt): state for *key, attempt, state in self._rows.read(_CALLS)}
        held = {call[:3] for call, state in self._calls.items() if state == "answered"}
        again = held & {call[:3] for call in calls.keys() - self._calls.keys()}
        self._calls = calls
        self._require(not again, f"the answer to {again} is held, and is asked for once more")

    def _check_claims(self, before: list[LaneMember], members: list[LaneMember]) -> None:
        """Only heads of lanes are claimed, each by one dispatcher at a time."""
        claims = {member.job_id: member.claim for member in before}
        for member in members:
            earlier = claims.get(member.job_id)
            if member.claim in (None, earlier):
                continue
            if earlier is not None:
                lapsed = self._seconds() - self._claimed[member.job_id] > CLAIM_LAPSES.total_seconds()
                self._require(lapsed, f"{member.job_id} was claimed by two dispatchers at once")
            ahead = [
                other.job_id
                for other in members
                if other.lane == member.lane and (other.status == "running" or other.turn < member.turn)
            ]
            self._require(member.lane is None or not ahead, f"{member.job_id} was claimed behind {ahead}")
            self._claimed[member.job_id] = self._seconds()

    def check_end(self) -> None:
        """Check that every message was answered once and in order, and that nothing is left open."""
        for message in self._platform.messages:
            self._check_message(message.message.id)
        self._check_order()
        self._check_calls()
        self._check_journal()
        self._check_posts_were_read()

    def _require(self, fact: object, problem: str) -> None:
        if not fact:
            self._problem = self._problem or problem
            raise BrokenPromise(problem)

    def _read_lanes(self) -> list[LaneMember]:
        return [LaneMember(*row) for row in self._rows.read(_LANES)]

    def _check_message(self, message_id: str) -> None:
        """A message has one job, whose message is one answer of the model, each chunk of it sent once."""
        jobs = self._rows.read(_JOBS, message_id)
        self._require(len(jobs) == 1, f"{message_id} has the jobs {jobs}")
        ((job_id, status, error),) = jobs
        self._require(status == "completed", f"{message_id} is {status} {error}")
        # The answer to an attempt that was given up may come after the one to its successor was sent.
        answers = [answer.split() for (answer,) in self._rows.read(_ANSWERS, job_id)]
        chunks = self._rows.read(_CHUNKS, job_id)
        sent = " ".join(content for _, content, _, _ in chunks).split()
        self._require(sent in answers, f"the answer to {message_id} is none that the model gave: {chunks}")
        for key, _, *outcome in chunks:
            self._check_chunk(f"a chunk of the answer to {message_id}", job_id, key, *outcome)

    def _check_chunk(self, name: str, job_id: str, key: str, state: str, repeats: int) -> None:
        """A chunk is there once; it may be missing or repeated only where a send ended without a known outcome."""
        can_settle = self._platform.idempotency is not Idempotency.NONE
        seen = sum(post.key == key for post in self._platform.posts)
        self._require(seen or state == "unconfirmed", f"{name} is {state} and not there")
        self._require(seen <= 1 + repeats, f"{name} is there {seen} times, and {repeats} repeats are marked")
        self._require(not can_settle or (state, repeats) == ("sent", 0), f"{name} can be settled and is {state}")
        # A process that lives may have sent the chunk after Temporal gave its attempt to another process.
        given_up = [lost for lost in self._lost_attempts(job_id, _SENDS) if not lost.died]
        doubts = self._platform.in_doubt[key] + len(given_up)
        self._require(state == "sent" or doubts, f"{name} is {state}, and each of its sends had an outcome")
        self._require(repeats <= doubts, f"{name} has {repeats} repeats, and {doubts} sends had no outcome")

    def _lost_attempts(self, job_id: str, activities: frozenset[str]) -> list[LostAttempt]:
        lost = self._temporal.lost_attempts
        return [attempt for attempt in lost if attempt.job_id == job_id and attempt.activity in activities]

    def _check_order(self) -> None:
        """The answers of a channel are there in the order in which its messages arrived, and no two are mixed."""
        arrivals = {message.message.id: message.arrival for message in self._platform.messages}
        order = {key: (arrivals[message_id], seq) for key, message_id, seq in self._rows.read(_ORDER)}
        posts = sorted(self._platform.posts, key=lambda post: post.address.channel)
        for channel, of_channel in groupby(posts, key=lambda post: post.address.channel):
            first = list(dict.fromkeys(order[post.key] for post in of_channel))
            self._require(first == sorted(first), f"the answers in {channel} came in the order {first}")

    def _check_calls(self) -> None:
        """Each request was recorded in a row of its own, and a call ended without an answer only by a fault."""
        attempts, unanswered = Counter[tuple[Any, ...]](), Counter[str]()
        for job_id, purpose, number, _, state in self._rows.read(_CALLS):
            attempts[job_id, purpose, number] += 1
            unanswered[job_id] += state in ("interrupted", "failed")
        for key, requests in self._provider.requests.items():
            recorded = attempts[key.job_id, key.purpose, key.number]
            self._require(requests <= recorded, f"{requests} requests of {key.job_id} were sent, {recorded} recorded")
        for job_id, ended in unanswered.items():
            faults = self._provider.failures[job_id] + len(self._lost_attempts(job_id, _MODEL_CALLS))
            self._require(ended <= faults, f"{ended} calls of {job_id} have no answer, and {faults} faults ended one")

    def _check_journal(self) -> None:
        """Every step is done once and none is open; no call is open, and no ended job holds anything."""
        steps = Counter(self._rows.read(_STEPS))
        wrong = [step for step, count in steps.items() if count > 1 or step[-1] == "running"]
        self._require(not wrong, f"these steps are open or done twice: {wrong}")
        for table in ("outbound_lanes", "reservations"):
            self._require(not self._rows.read(f"SELECT 1 FROM {table}"), f"a job that ended left {table}")
        self._require(not self._rows.read("SELECT 1 FROM llm_calls WHERE state = 'sent'"), "a call is open at the end")

    def _check_posts_were_read(self) -> None:
        """The cursor of the agent has passed only posts that were in a request with an answer."""
        read = self._rows.read("SELECT chat_after, chat_upto FROM llm_calls WHERE state = 'answered'")
        for (post,) in self._rows.read(_READ_POSTS):
            self._require(any(after < post <= upto for after, upto in read), f"no answered request had the post {post}")
