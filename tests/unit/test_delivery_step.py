"""A chunk in doubt is looked for, sent under its key or left; what a platform closed stays closed (step 13)."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from activities.chunks import FILENAME, pieces
from activities.delivery import DeliveryActivities, Matter
from connectors.base import (
    AmbiguousSend,
    Capabilities,
    Connector,
    Idempotency,
    LengthUnit,
    NotDispatched,
    PermanentSend,
    Scope,
    SendFailure,
)
from maestro.domain.deliveries import Delivery, Purpose
from maestro.domain.errors import Stopped
from maestro.domain.jobs.flow import DeliverStep
from maestro.domain.jobs.job import JobStatus
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from maestro.domain.redaction import as_it_is
from tests.support.job_rows import JobRows

CUT = AmbiguousSend("the connection was cut")
NOTICE = "one. " * 20


class Platform:
    """A platform in memory, and the connector to it; ``script`` says how the next sends go.

    None takes the message, a failure does not, and an ambiguous one takes it without saying so.
    """

    platform, account, token_digest = "web", "default", ""

    def __init__(self, idempotency: Idempotency, window: timedelta | None = None) -> None:
        self.capabilities = Capabilities(64, LengthUnit.CODE_POINTS, 8, idempotency, native_window=window)
        self.posts: list[OutgoingMessage] = []
        self.script: deque[SendFailure | None] = deque()
        self.refusals: list[str] = []

    async def run(self) -> None:
        """Receive nothing."""

    async def typing(self, address: Address) -> None:
        """Show nothing."""

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Take the message or not."""
        failure = self.script.popleft() if self.script else None
        known = self.capabilities.idempotency is Idempotency.NATIVE and message.key in {one.key for one in self.posts}
        if (failure is None or isinstance(failure, AmbiguousSend)) and not known:
            self.posts.append(message)
        if failure is not None:
            raise failure
        return Receipt(platform_message_id=f"p-{len(self.posts)}")

    # What the step asks of the hub and of the typing indicators.

    def holding(self, address: Address) -> Connector:
        """Return this one."""
        return self

    def refused(self, address: Address, reason: str) -> None:
        """Note that the account is refused."""
        self.refusals.append(reason)

    def start(self, job_id: str, address: Address) -> bool:
        """Show nothing."""
        return True

    def stop(self, job_id: str) -> None:
        """Show nothing."""


class Readable(Platform):
    """A platform whose messages can be read back."""

    looks = 0

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for the key."""
        self.looks += 1
        return next((Receipt(platform_message_id="found") for one in self.posts if one.key == message.key), None)


class Bench:
    """A job with something to say, and its step."""

    def __init__(self, rows: JobRows) -> None:
        self.rows = rows
        self.job_id = self.begin()

    def begin(self) -> str:
        """Add a job that runs."""
        job_id = self.rows.add()
        with self.rows.store.begin() as tx:
            tx.jobs.update(job_id, status=JobStatus.RUNNING, notice=NOTICE, started_at=tx.now)
        return job_id

    def deliver(self, platform: Platform) -> SendFailure | None:
        """Run one attempt of the step; return how it failed."""
        steps = DeliveryActivities(self.rows.store, platform, platform, lambda: None, Matter(lambda: as_it_is, Path))
        step = DeliverStep(job_id=self.job_id, step="deliver", purpose=Purpose.NOTICE, closes=True)
        with self.rows.store.begin() as tx:
            tx.steps.start(step, "deliver", 1)
        try:
            asyncio.run(steps.deliver(step))
        except SendFailure as failure:
            return failure
        return None

    def chunks(self) -> list[Delivery]:
        """Return the chunks as they are now."""
        with self.rows.store.view() as tx:
            return list(tx.deliveries.chunks(self.job_id, Purpose.NOTICE))

    def stop(self) -> None:
        """Ask the job to stop."""
        with self.rows.store.begin() as tx:
            tx.jobs.request_stop(self.job_id)

    def states(self) -> list[str]:
        """Return their states."""
        return [str(chunk.state) for chunk in self.chunks()]

    def status(self) -> JobStatus:
        """Return that of the job."""
        with self.rows.store.view() as tx:
            return tx.jobs.get(self.job_id).status


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    rows = JobRows.at(tmp_path)
    yield Bench(rows)
    rows.store.close()


def test_each_chunk_is_sent_once_under_a_key_of_its_own(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    assert bench.deliver(platform) is None
    keys = [post.key for post in platform.posts]
    assert (len(keys), len(set(keys)), max(map(len, keys))) == (2, 2, 24)
    assert bench.states() == ["sent", "sent"]
    assert all(chunk.tried_at is None for chunk in bench.chunks())


def test_a_stop_between_two_chunks_keeps_the_rest_from_being_sent(bench: Bench) -> None:
    class Stopping(Platform):
        async def send(self, message: OutgoingMessage) -> Receipt:
            await asyncio.to_thread(bench.stop)
            return await super().send(message)

    platform = Stopping(Idempotency.NATIVE)
    with pytest.raises(Stopped):
        bench.deliver(platform)
    with pytest.raises(Stopped):
        bench.deliver(platform)
    assert (len(platform.posts), bench.states()) == (1, ["sent", "pending"])


@pytest.mark.parametrize(
    ("make", "later", "posts", "states", "looks"),
    [
        pytest.param(
            lambda: Platform(Idempotency.NATIVE), timedelta(days=1), 2, ["sent", "sent"], 0, id="keys kept for ever"
        ),
        pytest.param(
            lambda: Readable(Idempotency.NATIVE, timedelta(minutes=2)),
            timedelta(minutes=1),
            2,
            ["sent", "sent"],
            0,
            id="keys kept long enough",
        ),
        pytest.param(
            lambda: Readable(Idempotency.NATIVE, timedelta(minutes=2)),
            timedelta(minutes=3),
            2,
            ["sent", "sent"],
            1,
            id="keys kept too short",
        ),
        pytest.param(
            lambda: Readable(Idempotency.RECONCILE), timedelta(0), 2, ["sent", "sent"], 1, id="messages can be read"
        ),
        pytest.param(
            lambda: Platform(Idempotency.NONE), timedelta(0), 2, ["unconfirmed", "sent"], 0, id="nobody can tell"
        ),
    ],
)
def test_what_the_platform_took_without_a_word_is_there_once(
    bench: Bench, make: Callable[[], Platform], later: timedelta, posts: int, states: list[str], looks: int
) -> None:
    platform = make()
    platform.script.append(CUT)
    assert bench.deliver(platform) is CUT
    bench.rows.clock.now += later
    assert bench.deliver(platform) is None
    assert (len(platform.posts), bench.states(), getattr(platform, "looks", 0)) == (posts, states, looks)
    assert bench.status() is JobStatus.COMPLETED


def test_what_the_platform_never_got_is_sent_after_a_look(bench: Bench) -> None:
    platform = Readable(Idempotency.RECONCILE)
    with bench.rows.store.begin() as tx:  # the process died between its note that it sends and the call
        tx.deliveries.take_lane("web/default/general", bench.job_id)
    platform.script.append(CUT)
    bench.deliver(platform)
    platform.posts.clear()
    assert bench.deliver(platform) is None
    assert (len(platform.posts), platform.looks, bench.states()) == (2, 1, ["sent", "sent"])


def test_a_try_that_surely_failed_takes_no_earlier_doubt_away(bench: Bench) -> None:
    platform = Readable(Idempotency.NATIVE, timedelta(minutes=2))
    platform.script += [CUT, NotDispatched("away")]
    bench.deliver(platform)
    bench.deliver(platform)
    assert bench.states()[0] == "sending", "the first try may have arrived"
    bench.rows.clock.now += timedelta(minutes=3)
    assert bench.deliver(platform) is None
    assert (len(platform.posts), platform.looks) == (2, 1)


def test_a_chunk_that_never_left_is_in_no_doubt(bench: Bench) -> None:
    platform = Platform(Idempotency.NONE)
    platform.script += [None, NotDispatched("away")]
    bench.deliver(platform)
    assert bench.states() == ["sent", "pending"]
    assert bench.deliver(platform) is None
    assert (len(platform.posts), bench.states()) == (2, ["sent", "sent"])


def test_a_channel_that_the_platform_closed_is_not_tried_again_until_it_is_opened(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    platform.script.append(PermanentSend("Missing Access", Scope.CHANNEL))
    bench.deliver(platform)
    bench.rows.end(bench.job_id, JobStatus.FAILED)
    bench.job_id = bench.begin()
    refused = bench.deliver(platform)
    assert isinstance(refused, PermanentSend)
    assert "Missing Access" in str(refused)
    assert (bench.chunks(), platform.posts) == ([], [])
    with bench.rows.store.begin() as tx:
        tx.channels.enable(Address(platform="web", channel="general"))
    assert bench.deliver(platform) is None
    assert bench.states() == ["sent", "sent"]


def test_an_account_that_is_refused_is_told_to_who_runs_it(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    platform.script.append(PermanentSend("the token was revoked", Scope.ACCOUNT))
    bench.deliver(platform)
    assert platform.refusals == ["the token was revoked"]


def test_more_than_six_messages_become_a_beginning_and_a_file() -> None:
    platform = Platform(Idempotency.NATIVE)
    text = "A sentence of some words. " * 40
    assert len(pieces(text, platform)) > 6, "who takes no files gets messages"
    platform.capabilities = Capabilities(
        140, LengthUnit.CODE_POINTS, 8, Idempotency.NATIVE, max_file_bytes=len(text.encode())
    )
    beginning, whole = pieces(text, platform)
    assert len(beginning.content) <= 140
    assert beginning.content.startswith("A sentence of some words.")
    assert FILENAME in beginning.content
    assert (whole.content, whole.filename) == (text, FILENAME)
    assert len(pieces(text + "!", platform)) > 2, "too large for a file"


def test_of_what_goes_as_a_file_only_the_beginning_is_cut() -> None:
    asked = [renders(of_words) for of_words in (1_000, 10_000)]
    assert asked[0] == asked[1]


def renders(words: int) -> int:
    """Return how often a platform is asked how long a part of a text would be, before it goes as a file."""

    class Rendering(Platform):
        asked = 0

        def render(self, text: str) -> str:
            """Count."""
            self.asked += 1
            return text

    platform = Rendering(Idempotency.NATIVE)
    platform.capabilities = Capabilities(140, LengthUnit.CODE_POINTS, 8, Idempotency.NATIVE, max_file_bytes=10**6)
    assert len(pieces("word. " * words, platform)) == 2
    return platform.asked
