"""A chunk in doubt is looked for, sent under its key or left; what a platform closed stays closed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from activities.chunks import FILENAME, split_text
from connectors.base import (
    AmbiguousSend,
    Capabilities,
    FailureScope,
    Idempotency,
    LengthUnit,
    NotDispatched,
    OnAmbiguous,
    PermanentSend,
    SendFailure,
)
from maestro.domain.errors import StepTaken, Stopped
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from maestro.store.store import Store
from tests.support.delivery_bench import CUT, Bench, Platform, Readable, Silent
from tests.support.fresh_store import path_of
from tests.support.instance import until
from tests.support.job_rows import JobRows
from tests.support.locking import locked


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    rows = JobRows.at(tmp_path)
    yield Bench(rows, tmp_path)
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


@pytest.mark.parametrize("failure", [None, AmbiguousSend("cut off"), NotDispatched("refused")])
def test_an_attempt_that_stalled_while_it_sent_leaves_the_rest_to_the_newer_one(
    bench: Bench, failure: SendFailure | None
) -> None:
    class Stalling(Platform):
        async def send(self, message: OutgoingMessage) -> Receipt:
            await asyncio.to_thread(bench.begin_attempt)
            return await super().send(message)

    platform = Stalling(Idempotency.NATIVE)
    platform.script.append(failure)
    with pytest.raises(StepTaken):
        bench.deliver(platform)
    # Its receipt counts; how it failed does not, since the newer attempt may have sent the chunk by now.
    assert bench.states() == (["sent", "pending"] if failure is None else ["sending", "pending"])
    assert bench.status() is JobStatus.RUNNING


def test_a_receipt_that_the_store_does_not_take_is_kept_and_nothing_is_sent_twice(bench: Bench) -> None:
    """Without its receipt a chunk is in doubt; this platform cannot be asked, and has such chunks sent again."""
    database = path_of(bench.rows.store)
    bench.rows.store.close()
    store = bench.rows.store = Store(database, bench.rows.clock, busy_seconds=0.02)

    class Locking(Platform):
        async def send(self, message: OutgoingMessage) -> Receipt:
            receipt = await super().send(message)
            lock = locked(database)
            lock.__enter__()
            self.unlocking = asyncio.create_task(self.unlock(lock, store.write_history.failures))
            return receipt

        async def unlock(self, lock: AbstractContextManager[None], failures: int) -> None:
            await until(lambda: store.write_history.failures > failures)
            lock.__exit__(None, None, None)

    platform = Locking(Idempotency.NONE)
    assert bench.deliver(platform) is None
    assert store.write_history.failures >= len(platform.posts)
    assert (len(platform.posts), bench.states()) == (2, ["sent", "sent"])
    assert all(chunk.tried_at is None for chunk in bench.chunks())


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
    assert (file.filename, file.path, file.content) == ("small.txt", bench.folder / "small.txt", "a caption")
    assert (words.path, words.filename) == (None, "")


def test_what_is_too_large_is_told_where_nothing_else_is_said(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    platform.capabilities = replace(platform.capabilities, max_length=200)
    bench.answer("")
    bench.file("a.bin", 1)
    assert bench.deliver(platform) is None
    assert [post.content for post in platform.posts] == [
        "(The file a.bin is not sent here: this channel gets no files.)"
    ]


def test_a_file_that_is_gone_fails_for_good_and_says_which(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    platform.capabilities = replace(platform.capabilities, max_file_bytes=10)
    bench.answer("an answer")
    bench.file("small.txt", 3)
    (bench.folder / "small.txt").unlink()
    failure = bench.deliver(platform)
    assert isinstance(failure, PermanentSend)
    assert (failure.scope, str(failure)) == (
        FailureScope.MESSAGE,
        "the file small.txt was deleted from Maestro's storage",
    )
    assert [post.content for post in platform.posts] == ["an answer"]


def test_what_the_platform_never_got_is_sent_after_a_look(bench: Bench) -> None:
    platform = Readable(Idempotency.RECONCILE)
    with bench.rows.store.begin() as tx:  # the process died between its note that it sends and the call
        assert tx.deliveries.begin_delivery(tx.jobs.read(bench.job_id), bench.purpose).has_lane
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
    platform.script.append(PermanentSend("Missing Access", FailureScope.CHANNEL))
    bench.deliver(platform)
    bench.rows.end(bench.job_id, JobStatus.FAILED)
    bench.job_id = bench.begin()
    refused = bench.deliver(platform)
    assert isinstance(refused, PermanentSend)
    assert "Missing Access" in str(refused)
    assert (bench.chunks(), platform.posts) == ([], [])
    with bench.rows.store.begin() as tx:
        tx.bots.channels.enable(Address(platform="web", channel="general"))
    assert bench.deliver(platform) is None
    assert bench.states() == ["sent", "sent"]


def test_an_account_that_is_refused_is_told_to_who_runs_it(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    platform.script.append(PermanentSend("the token was revoked", FailureScope.ACCOUNT))
    bench.deliver(platform)
    assert platform.refusals == ["the token was revoked"]


def test_more_than_six_messages_become_a_beginning_and_a_file() -> None:
    platform = Platform(Idempotency.NATIVE)
    text = "A sentence of some words. " * 40
    assert len(split_text(text, platform)) > 6, "who takes no files gets messages"
    platform.capabilities = Capabilities(
        140, LengthUnit.CODE_POINTS, 8, Idempotency.NATIVE, max_file_bytes=len(text.encode())
    )
    beginning, whole = split_text(text, platform)
    assert len(beginning.content) <= 140
    assert beginning.content.startswith("A sentence of some words.")
    assert FILENAME in beginning.content
    assert (whole.content, whole.filename) == (text, FILENAME)
    assert len(split_text(text + "!", platform)) > 2, "too large for a file"


def test_messages_without_room_to_tell_of_a_file_stay_messages() -> None:
    platform = Platform(Idempotency.NATIVE)
    platform.capabilities = replace(platform.capabilities, max_length=100, max_file_bytes=10**6)
    assert len(split_text("A sentence of some words. " * 40, platform)) > 6


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
    assert len(split_text("word. " * words, platform)) == 2
    return platform.asked
