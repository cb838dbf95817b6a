"""What was sent without a word back is settled by what Meta posts of it, in time or not at all."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from connectors.base import OnAmbiguous
from connectors.failures import AmbiguousSend, NotDispatched, SendFailure, Unsettled
from maestro.domain.messages import ReceiptReport, ReceiptState
from tests.support.whatsapp_number import ADA, WhatsAppNumber, chunk, whatsapp_and_number
from tests.support.whatsapp_server import Fault


async def failed(number: WhatsAppNumber, content: str = "hello", **fields: Any) -> SendFailure:
    """Return why a send failed."""
    with pytest.raises(SendFailure) as failure:
        await number.connector.send(chunk(content, **fields))
    return failure.value


async def test_a_status_settles_what_was_sent_without_a_word() -> None:
    async with whatsapp_and_number(status_seconds=20) as number:
        number.whatsapp.fail("messages", Fault.cut_after())
        assert isinstance(await failed(number), AmbiguousSend)
        receipt = await number.connector.find(chunk("hello", tried_at=datetime.now(UTC)))
        [sent] = number.whatsapp.sent(ADA)
        assert receipt is not None
        assert receipt.platform_message_id == sent["id"]


async def test_a_status_may_come_before_the_answer_to_the_send() -> None:
    async with whatsapp_and_number() as number:
        number.whatsapp.fail("messages", Fault.late())
        sending = asyncio.create_task(number.connector.send(chunk("hello")))
        [sent] = await number.whatsapp.posts(ADA)
        await number.whatsapp.taken()
        known = await number.context.receipt(chunk("").key)
        assert known is not None
        assert known.platform_message_id == sent["id"]
        number.whatsapp.may_answer.set()
        assert await sending == known


async def test_without_any_status_nobody_will_ever_know() -> None:
    async with whatsapp_and_number(status_seconds=0.2) as number:
        number.whatsapp.tells = ()
        number.whatsapp.fail("messages", Fault.cut_after())
        await failed(number)
        with pytest.raises(Unsettled):
            await number.connector.find(chunk("hello", tried_at=datetime.now(UTC)))


async def test_nobody_has_waited_before_anybody_could_listen() -> None:
    """Nothing is sent again because Meta did not let us in for a while, in which it posts in vain."""
    async with whatsapp_and_number(start=False, status_seconds=0) as number:
        with pytest.raises(NotDispatched):
            await number.connector.find(chunk("hello", tried_at=datetime.now(UTC) - timedelta(hours=1)))


async def test_after_a_while_away_statuses_have_time_to_come_again() -> None:
    """It was tried an hour ago, but nobody listened until now."""
    async with whatsapp_and_number(start=False, status_seconds=20) as number:
        number.whatsapp.fail("messages", Fault.cut_after())
        await failed(number)
        tried = datetime.now(UTC) - timedelta(hours=1)
        await number.start()
        number.whatsapp.postman.hurry()
        receipt = await number.connector.find(chunk("hello", tried_at=tried))
        assert receipt is not None
        assert receipt.platform_message_id == number.whatsapp.sent(ADA)[0]["id"]


async def test_statuses_in_any_order_leave_the_furthest() -> None:
    async with whatsapp_and_number() as number:
        number.whatsapp.tells = ()
        await number.connector.send(chunk("hello"))
        [sent] = number.whatsapp.sent(ADA)
        await number.whatsapp.taken(number.whatsapp.report(sent, "read", "sent", "delivered"))
        report = ReceiptReport(platform_message_id=sent["id"], standing=ReceiptState.READ)
        assert number.context.reports == {chunk("").key: report}
        await number.whatsapp.taken(number.whatsapp.report(sent, "failed", code=131026))
        assert "not on WhatsApp" in number.context.reports[chunk("").key].error


async def test_what_nobody_can_settle_is_the_operators_choice() -> None:
    async with whatsapp_and_number(start=False, on_ambiguous="hold") as number:
        assert number.connector.capabilities.on_ambiguous is OnAmbiguous.HOLD
    async with whatsapp_and_number(start=False) as number:
        assert number.connector.capabilities.on_ambiguous is OnAmbiguous.AUTO
