"""What is known of a channel: when somebody was heard there last."""

from datetime import timedelta
from pathlib import Path

from maestro.domain.messages import Address, IncomingMessage
from tests.support.job_rows import MORNING, JobRows

HERE = Address(platform="whatsapp", channel="4915100000001")


def test_who_was_heard_last_is_the_newest_message_though_an_older_one_comes_after_it(tmp_path: Path) -> None:
    """Meta posts again what we did not take, more and more seldom."""
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        assert tx.bots.channels.read_last_activity(HERE) is None
        for number, hours in enumerate((30, 1, 29)):
            at = MORNING - timedelta(hours=hours)
            message = IncomingMessage(id=str(number), address=HERE, user_id="ada", content="hi", sent_at=at)
            tx.inbox.add(message, f"job-{number}")
        assert tx.bots.channels.read_last_activity(HERE) == MORNING - timedelta(hours=1)
        assert tx.bots.channels.read_last_activity(HERE.model_copy(update={"account": "other"})) is None
    rows.store.close()
