"""What becomes of the draft when the answer takes its place, or cannot."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.base import FailureScope, Idempotency, PermanentSend, SendFailure
from maestro.domain.deliveries import Delivery, DeliveryState
from maestro.domain.messages import OutgoingMessage, Receipt
from tests.support.delivery_bench import CUT, Bench, Platform
from tests.support.job_rows import JobRows

GONE = PermanentSend("somebody deleted it", FailureScope.MESSAGE)


class Editable(Platform):
    """A platform on which messages can be changed; ``troubles`` say how the next changes go."""

    def __init__(self) -> None:
        super().__init__(Idempotency.NATIVE)
        self.troubles: list[SendFailure | None] = []
        self.edits: list[str] = []

    async def edit(self, message: OutgoingMessage) -> None:
        """Change the message or not."""
        self.edits.append(message.edits)
        failure = self.troubles.pop(0) if self.troubles else None
        if failure is not None:
            raise failure


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    rows = JobRows.at(tmp_path)
    bench = Bench(rows, tmp_path)
    bench.answer("the answer")
    with rows.store.begin() as tx:
        tx.deliveries.drafts.save_draft_text(bench.job_id, 1, "the an")
        assert tx.deliveries.drafts.mark_sending(bench.job_id)
        tx.deliveries.drafts.set_message_id(bench.job_id, Receipt(platform_message_id="p-7"))
    yield bench
    rows.store.close()


def left(bench: Bench) -> tuple[list[Delivery], bool]:
    """Return the chunks, and whether there is a draft."""
    with bench.rows.store.view() as tx:
        return list(tx.deliveries.list_chunks(bench.job_id, bench.purpose)), tx.deliveries.drafts.find_draft(
            bench.job_id
        ) is not None


def test_the_answer_takes_the_place(bench: Bench) -> None:
    platform = Editable()
    assert bench.deliver(platform) is None
    (chunk,), drafted = left(bench)
    assert (platform.edits, platform.posts, drafted) == (["p-7"], [], False)
    assert (chunk.state, chunk.platform_message_id) == (DeliveryState.SENT, "p-7")


def test_a_change_of_which_nobody_heard_is_made_again(bench: Bench) -> None:
    platform = Editable()
    platform.troubles = [CUT]
    assert bench.deliver(platform) is CUT
    assert bench.deliver(platform) is None
    assert (platform.edits, platform.posts, left(bench)[1]) == (["p-7", "p-7"], [], False)


@pytest.mark.parametrize("before", [[], [CUT]], ids=["at once", "after a cut"])
def test_where_the_message_is_gone_the_answer_is_a_new_one_and_leaves_no_draft(
    bench: Bench, before: list[SendFailure | None]
) -> None:
    platform = Editable()
    platform.troubles = [*before, GONE]
    platform.script.append(CUT)
    outcomes = [bench.deliver(platform) for _ in (*before, "cut while it is sent")]
    # What holds a place no more is never changed again, also when the step is repeated.
    assert left(bench)[1] is False
    assert [*outcomes, bench.deliver(platform)] == [*before, CUT, None]
    (chunk,), _ = left(bench)
    assert (len(platform.posts), platform.edits) == (1, ["p-7"] * (len(before) + 1))
    assert (chunk.state, chunk.platform_message_id, chunk.edits) == (DeliveryState.SENT, "p-1", "")


def test_a_platform_that_changes_nothing_any_more_is_sent_a_new_one(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    assert bench.deliver(platform) is None
    assert ([post.content for post in platform.posts], left(bench)[1]) == (["the answer"], False)
