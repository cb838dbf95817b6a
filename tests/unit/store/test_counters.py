"""The counters of a conversation equal the sums of its rows, and two first messages make one conversation."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from activities.conversations import ConversationActivities
from maestro.domain.agents.agent import Agent
from maestro.domain.conversations.conversation import Message
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, StepRef
from maestro.domain.llm.prompts import Role
from maestro.domain.messages import Address, IncomingMessage
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.conversations import talk_with
from tests.support.fresh_store import fresh_store

NOW = datetime(2026, 11, 20, tzinfo=UTC)
PROPERTY = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

Events = list[tuple[str, int]]
EVENTS = st.lists(
    st.tuples(st.sampled_from(["ask", "answer", "archive", "recall", "restart", "delete"]), st.integers(0, 40)),
    max_size=30,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with closing(fresh_store(tmp_path_factory.mktemp("store") / "maestro.db", lambda: NOW)) as opened:
        with opened.begin() as tx:
            tx.agents.save_agent(Agent(slug="ada", name="Ada", created_at=NOW, updated_at=NOW))
        yield opened


class Talk:
    """One channel in which random things happen; ``jobs`` are those that still have a conversation."""

    def __init__(self, store: Store, channel: str) -> None:
        self._store = store
        self._address = Address(platform="web", channel=channel)
        self._jobs: list[str] = []
        self._count = 0

    def do(self, event: str, number: int) -> None:
        """Let one thing happen; ``number`` says to which of the messages, where it matters."""
        happen: dict[str, Callable[[Transaction, int], None]] = {
            "ask": self._ask,
            "answer": self._answer,
            "archive": self._archive,
            "recall": self._recall,
            "restart": self._restart,
        }
        if event == "delete":
            self._delete()
            return
        with self._store.begin() as tx:
            if self._jobs or event == "ask":
                happen[event](tx, number)

    def check(self) -> None:
        """Compare the counters of every conversation of the channel with its rows."""
        with self._store.view() as tx:
            for job_id in self._jobs:
                conversation = tx.conversations.get(tx.jobs.get(job_id).conversation_id)
                rows = tx.conversations.list_messages(conversation.id or 0)
                counted = (conversation.message_count, conversation.total_tokens_estimate)
                assert counted == (len(rows), sum(row.token_estimate for row in rows))

    def _ask(self, tx: Transaction, number: int) -> None:
        self._count += 1
        job_id = f"{self._address.channel}-{self._count}"
        message = IncomingMessage(id=job_id, address=self._address, user_id="u", content="x", sent_at=NOW)
        row = tx.inbox.add(message, job_id)
        talk = talk_with(tx, 1, self._address, ("u", "U"))
        where = {"conversation_id": talk.id, **self._address.model_dump()}
        tx.jobs.add(Job(id=job_id, inbox_id=row.id, status=JobStatus.RUNNING, created_at=NOW, **where))
        tx.conversations.add_message(_message(talk.id, Role.USER, job_id, number, inbox_id=row.id))
        tx.jobs.close_job(job_id, JobEnding(status=JobStatus.COMPLETED))
        self._jobs.append(job_id)

    def _answer(self, tx: Transaction, number: int) -> None:
        job = self._job(tx, number)
        messages = tx.conversations.list_messages(job.conversation_id or 0)
        answered = any(said.job_id == job.id and said.role is Role.ASSISTANT for said in messages)
        if not answered and not _archived_answer(tx, job):
            tx.conversations.add_message(_message(job.conversation_id, Role.ASSISTANT, job.id, number))

    def _archive(self, tx: Transaction, number: int) -> None:
        conversation_id = self._job(tx, number).conversation_id or 0
        going = tx.conversations.list_messages(conversation_id)[: number % 5]
        tx.conversations.compactions.archive_messages(conversation_id, [row.id or 0 for row in going])

    def _recall(self, tx: Transaction, number: int) -> None:
        tx.conversations.restore_recorded_message(self._job(tx, number).inbox_id)

    def _restart(self, tx: Transaction, number: int) -> None:
        tx.conversations.mark_superseded([self._job(tx, number).id])

    def _delete(self) -> None:
        with self._store.view() as tx:
            if not self._jobs:
                return
            plan = tx.conversations.removals.plan_removal(self._job(tx, 0).conversation_id or 0)
        with self._store.begin() as tx:
            tx.conversations.removals.carry_out(plan, "a test", facts=False)
        self._jobs = []

    def _job(self, tx: Transaction, number: int) -> Job:
        return tx.jobs.get(self._jobs[number % len(self._jobs)])


def _archived_answer(tx: Transaction, job: Job) -> bool:
    said, _ = tx.conversations.lists.list_messages_after(job.conversation_id or 0, 0, 1000)
    return any(one.archived and one.message.job_id == job.id and one.message.role is Role.ASSISTANT for one in said)


def _message(talk: int | None, role: Role, job_id: str, number: int, inbox_id: int | None = None) -> Message:
    return Message(
        conversation_id=talk or 0,
        role=role,
        content="x" * number,
        token_estimate=number,
        inbox_id=inbox_id,
        job_id=job_id,
        created_at=NOW,
    )


channels = iter(range(1_000_000))


@PROPERTY
@given(events=EVENTS)
def test_the_counters_equal_the_sums_whatever_happens(store: Store, events: Events) -> None:
    talk = Talk(store, f"channel-{next(channels)}")
    for event, number in events:
        talk.do(event, number)
        talk.check()


def test_two_first_messages_at_once_make_one_conversation(tmp_path: Path) -> None:
    """Two stores on one file lock each other out exactly as two processes do."""
    path = tmp_path / "maestro.db"
    with closing(Store.open(path, lambda: NOW)) as one, closing(Store(path, lambda: NOW)) as other:
        with one.begin() as tx:
            tx.agents.save_agent(Agent(slug="ada", name="Ada", created_at=NOW, updated_at=NOW))
        steps = [_first_message(one, channel, half) for channel in range(20) for half in range(2)]
        barrier = Barrier(2)

        def record(store: Store, half: int) -> list[int]:
            activities, made = ConversationActivities(store, lambda _: 200_000), []
            for step in steps[half::2]:
                barrier.wait()
                made.append(activities.record_message(step).conversation_id)
            return made

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(record, (one, other), (0, 1))
    assert first == second
    assert len(set(first)) == 20


def _first_message(store: Store, channel: int, half: int) -> StepRef:
    """Bring a message as far as the step that records it."""
    job_id = f"message-{channel}-{half}"
    address = Address(platform="web", channel=f"channel-{channel}")
    ref = StepRef(job_id=job_id, step="conversation")
    with store.begin() as tx:
        message = IncomingMessage(id=job_id, address=address, user_id="u", content="hello", sent_at=NOW)
        row = tx.inbox.add(message, job_id)
        tx.jobs.add(Job(id=job_id, inbox_id=row.id, agent_id=1, created_at=NOW, **address.model_dump()))
        tx.jobs.steps.start_attempt(ref, "record_message", 1)
    return ref
