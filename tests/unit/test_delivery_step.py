"""A chunk in doubt is looked for, sent under its key or left; what a platform closed stays closed (step 13)."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
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
    OnAmbiguous,
    PermanentSend,
    Scope,
    SendFailure,
    Unsettled,
)
from maestro.domain.deliveries import Delivery, JobFile, Purpose
from maestro.domain.errors import Stopped
from maestro.domain.jobs.flow import DeliverStep
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.messages import Address, OutgoingMessage, Receipt, Report, Standing
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

    def start(self, job_id: str, address: Address, seen: str = "") -> bool:
        """Show nothing."""
        return True

    def stop(self, job_id: str) -> None:
        """Show nothing."""

    async def finished(self, job_id: str) -> None:
        """Show no drafts."""

    async def settle(self, job_id: str, connector: Connector) -> None:
        """Show no drafts."""


class Readable(Platform):
    """A platform whose messages can be read back."""

    looks = 0

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for the key."""
        self.looks += 1
        return next((Receipt(platform_message_id="found") for one in self.posts if one.key == message.key), None)


class Silent(Platform):
    """A platform that may know, and never says."""

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Say nothing."""
        raise Unsettled("no word of it")


class Bench:
    """A job with something to say, and its step."""

    def __init__(self, rows: JobRows) -> None:
        self.rows = rows
        self.purpose = Purpose.NOTICE
        self.job_id = self.begin()

    def begin(self) -> str:
        """Add a job that runs."""
        job_id = self.rows.add()
        with self.rows.store.begin() as tx:
            tx.jobs.update(job_id, status=JobStatus.RUNNING, notice=NOTICE, started_at=tx.now)
        return job_id

    def deliver(self, platform: Platform) -> SendFailure | None:
        """Run one attempt of the step; return how it failed."""
        steps = DeliveryActivities(
            self.rows.store, platform, platform, lambda: None, Matter(lambda: as_it_is, Path, platform)
        )
        step = DeliverStep(job_id=self.job_id, step="deliver", purpose=self.purpose, closes=True)
        with self.rows.store.begin() as tx:
            tx.steps.start(step, "deliver", 1)
        try:
            asyncio.run(steps.deliver(step))
        except SendFailure as failure:
            return failure
        return None

    def answer(self, text: str, kind: JobKind = JobKind.MESSAGE) -> None:
        """Let the job have an answer to say instead."""
        self.purpose = Purpose.ANSWER
        with self.rows.store.begin() as tx:
            tx.jobs.update(self.job_id, notice="", said=text, kind=kind)

    def file(self, name: str, size: int) -> None:
        """Let the agent want to send a file."""
        with self.rows.store.begin() as tx:
            file = JobFile(
                job_id=self.job_id, digest=name, filename=name, size=size, caption="a caption", created_at=tx.now
            )
            tx.job_files.add(file)
            tx.job_files.add(file)

    def told(self, key: str, standing: Standing) -> None:
        """Let the platform say what became of a chunk."""
        with self.rows.store.begin() as tx:
            report = Report(platform_message_id="p-1", standing=standing, error="nobody is there")
            assert tx.reports.told(Address(platform="web", channel=""), key, report)

    def chunks(self) -> list[Delivery]:
        """Return the chunks as they are now."""
        with self.rows.store.view() as tx:
            return list(tx.deliveries.chunks(self.job_id, self.purpose))

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


@pytest.mark.parametrize(
    ("rule", "kind", "posts", "state", "repeats"),
    [
        (OnAmbiguous.RESEND, JobKind.MESSAGE, 3, "sent", 1),
        (OnAmbiguous.RESEND, JobKind.HEARTBEAT, 3, "sent", 1),
        (OnAmbiguous.HOLD, JobKind.MESSAGE, 2, "unconfirmed", 0),
        (OnAmbiguous.AUTO, JobKind.MESSAGE, 3, "sent", 1),
        (OnAmbiguous.AUTO, JobKind.HEARTBEAT, 2, "unconfirmed", 0),
    ],
)
@pytest.mark.parametrize("make", [lambda: Platform(Idempotency.NONE), lambda: Silent(Idempotency.RECONCILE)])
def test_what_nobody_can_settle_goes_by_the_rule_of_the_account(
    bench: Bench, make: Callable[[], Platform], rule: OnAmbiguous, kind: JobKind, posts: int, state: str, repeats: int
) -> None:
    """An answer that was sent again is marked: it may be there twice. A scheduled post is not posted twice."""
    platform = make()
    platform.capabilities = replace(platform.capabilities, on_ambiguous=rule)
    bench.answer("part one. " * 12, kind)
    platform.script.append(CUT)
    assert bench.deliver(platform) is CUT
    assert bench.deliver(platform) is None
    first, second = bench.chunks()
    assert (len(platform.posts), str(first.state), first.repeats) == (posts, state, repeats)
    assert (str(second.state), second.repeats) == ("sent", 0)
    assert bench.status() is JobStatus.COMPLETED


def test_a_repeat_that_never_left_marks_nothing(bench: Bench) -> None:
    platform = Platform(Idempotency.NONE)
    platform.capabilities = replace(platform.capabilities, on_ambiguous=OnAmbiguous.RESEND)
    platform.script += [CUT, NotDispatched("away"), NotDispatched("away")]
    for _ in range(3):
        bench.deliver(platform)
    assert [chunk.repeats for chunk in bench.chunks()] == [0, 0]
    assert bench.deliver(platform) is None
    assert [chunk.repeats for chunk in bench.chunks()] == [1, 0]


def test_what_the_platform_could_not_bring_fails_the_job_and_is_sent_again_when_it_is_resumed(bench: Bench) -> None:
    """The status comes before our receipt."""

    class Undeliverable(Platform):
        async def send(self, message: OutgoingMessage) -> Receipt:
            receipt = await super().send(message)
            await asyncio.to_thread(bench.told, message.key, Standing.FAILED)
            return receipt

    refused = bench.deliver(Undeliverable(Idempotency.NATIVE))
    assert isinstance(refused, PermanentSend)
    assert (bench.states(), bench.chunks()[0].error) == (["failed", "failed"], "nobody is there")
    bench.rows.end(bench.job_id, JobStatus.FAILED)
    with bench.rows.store.begin() as tx:
        tx.deliveries.revive(bench.job_id)
        tx.jobs.update(bench.job_id, status=JobStatus.RUNNING, completed_at=None)
    platform = Platform(Idempotency.NATIVE)
    assert bench.deliver(platform) is None
    assert (len(platform.posts), bench.states()) == (2, ["sent", "sent"])


def test_what_fails_after_the_job_was_answered_makes_it_one_that_failed(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    bench.answer("an answer")
    assert bench.deliver(platform) is None
    bench.told(platform.posts[0].key, Standing.FAILED)
    with bench.rows.store.view() as tx:
        job = tx.jobs.get(bench.job_id)
        assert tx.steps.last_error(bench.job_id) == "Undelivered"
    assert (job.status, job.error, bench.states()) == (JobStatus.FAILED, "nobody is there", ["failed"])


def test_what_a_platform_tells_never_goes_back(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    bench.answer("an answer")
    assert bench.deliver(platform) is None
    key = platform.posts[0].key
    for standing in (Standing.READ, Standing.SENT, Standing.DELIVERED, Standing.FAILED):
        bench.told(key, standing)
    assert (bench.states(), bench.chunks()[0].standing, bench.status()) == (["sent"], "failed", JobStatus.COMPLETED)


def test_files_go_after_the_words_and_what_is_too_large_is_told(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    platform.capabilities = replace(platform.capabilities, max_length=200, max_file_bytes=10)
    bench.answer("an answer")
    for name, size in (("small.txt", 10), ("large.bin", 11)):
        bench.file(name, size)
    assert bench.deliver(platform) is None
    words, file = platform.posts
    assert "an answer" in words.content
    assert "large.bin is not sent here" in words.content
    assert (file.filename, file.path, file.content) == ("small.txt", Path("small.txt"), "a caption")
    assert (words.path, words.filename) == (None, "")


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
