"""What people reply to is found by the platform's id, in its channel, by an index."""

import re
from pathlib import Path

import pytest

from maestro.domain.context.history import RepliedMessage
from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.messages import Address, Attachment, InboxRow, IncomingMessage, Receipt
from maestro.store.conversations.inbox import QuotedMessages
from maestro.store.engine.statements import CHANNEL_KEY, row_select
from tests.support.job_rows import JobRows
from tests.support.plans import explain_prepared

HERE = Address(platform="discord", channel="square", thread="t-1")


@pytest.fixture
def rows(tmp_path: Path) -> JobRows:
    return JobRows.at(tmp_path)


def sent(rows: JobRows, job_id: str, known_as: str, content: str, seq: int = 0, **fields: object) -> None:
    """Have a job send something that its platform knows by this id."""
    with rows.store.begin() as tx:
        chunk = Delivery(
            job_id=job_id,
            purpose=DeliveryPurpose.ANSWER,
            seq=seq,
            content=content,
            created_at=tx.now,
            **{**HERE.model_dump(), **fields},
        )
        tx.deliveries.mark_sent(tx.deliveries.add_chunk(chunk).id or 0, Receipt(platform_message_id=known_as))


def heard(rows: JobRows, message_id: str, content: str = "words", **fields: object) -> InboxRow:
    """Take in a message of Grace's."""
    message = IncomingMessage(
        **{
            "id": message_id,
            "address": HERE,
            "user_id": "u-1",
            "user_name": "Grace",
            "content": content,
            "sent_at": rows.clock.now,
            **fields,
        }
    )
    job_id = rows.add()
    with rows.store.begin() as tx:
        return tx.inbox.get(tx.inbox.add(message, job_id).id)


def quote(rows: JobRows, row: InboxRow, agent: int | None = 1) -> RepliedMessage | None:
    with rows.store.view() as tx:
        return tx.inbox.quotes.find_quoted(row, agent)


def test_ours_is_what_the_agent_said_or_another_one(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.view() as tx:
        ada = tx.agents.get_agent_by_slug("ada").id
        answer = tx.jobs.get(job_id).answer_id
        assert tx.jobs.get(job_id).agent_id == ada
    sent(rows, job_id, "m-7", "the blue one")
    sent(rows, job_id, "m-8", "", seq=1, filename="plan.png", digest="0")
    reply = heard(rows, "r-1", reply_to="m-7")
    assert quote(rows, reply, ada) == RepliedMessage("the blue one", message_id=answer)
    assert quote(rows, reply, 99) == RepliedMessage("the blue one", "@ada", message_id=answer)
    assert quote(rows, heard(rows, "r-2", reply_to="m-8"), ada) == RepliedMessage("plan.png", message_id=answer)


def test_theirs_is_what_a_person_said_or_the_names_of_what_came_with_it(rows: JobRows) -> None:
    first = heard(rows, "m-1", "who paints the shed?")
    assert quote(rows, heard(rows, "r-1", reply_to="m-1")) == RepliedMessage(
        "who paints the shed?", "Grace", inbox_id=first.id
    )
    files = (Attachment(id="1", filename="a.png"), Attachment(id="2"), Attachment(id="3", filename="b.png"))
    second = heard(rows, "m-2", "", user_name="", attachments=files)
    assert quote(rows, heard(rows, "r-2", reply_to="m-2")) == RepliedMessage(
        "a.png, b.png", "somebody", inbox_id=second.id
    )


def test_a_reply_to_nothing_that_is_here_quotes_nothing(rows: JobRows) -> None:
    sent(rows, rows.add(), "m-7", "elsewhere", channel="another")
    sent(rows, rows.add(), "m-9", "")
    heard(rows, "t-1", "it began the thread")
    for number, reply_to in enumerate(("", "m-7", "m-9", "unknown", "t-1")):
        assert quote(rows, heard(rows, f"r-{number}", reply_to=reply_to)) is None, reply_to


def test_it_costs_one_look_into_an_index(rows: JobRows, tmp_path: Path) -> None:
    ours, theirs = QuotedMessages._OURS, row_select(InboxRow, *CHANNEL_KEY, "message_id")
    for prepared, last in ((ours, "platform_message_id"), (theirs, "message_id")):
        plan = explain_prepared(tmp_path / "maestro.db", prepared)
        key = rf"platform ?=.*AND \(?account ?=.*AND \(?channel ?=.*AND \(?{last} ?="
        assert re.search(key, "\n".join(plan.lines)), plan
        assert not plan.scanned | plan.read_through
