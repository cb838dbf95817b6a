"""What the frame of a chunk says besides its text."""

import pytest

from connectors.web.frames import credentials, delivery
from maestro.domain.errors import InvalidMessage
from maestro.domain.messages import Address, OutgoingMessage


@pytest.mark.parametrize("marks", [{}, {"more": True}, {"notice": True}, {"more": True, "notice": True}])
def test_a_frame_says_only_what_is_so(marks: dict[str, bool]) -> None:
    frame = delivery(OutgoingMessage(id=7, address=Address(platform="web", channel="c"), content="x", **marks))
    assert frame == {"type": "message", "id": 7, "channelId": "c", "content": "x", **marks}


def test_a_reply_names_what_it_replies_to() -> None:
    message = OutgoingMessage(id=7, address=Address(platform="web", channel="c"), content="x", reply_to="local:one")
    assert delivery(message)["replyTo"] == "local:one"


def test_a_client_is_a_bot_if_it_says_so_in_so_many_words() -> None:
    assert [credentials(fields).bot for fields in ({}, {"bot": None}, {"bot": False}, {"bot": True})] == [
        False,
        False,
        False,
        True,
    ]
    with pytest.raises(InvalidMessage, match="bot must be true or false"):
        credentials({"bot": "yes"})
