"""What the frame of a chunk says besides its text."""

import pytest

from connectors.web.frames import delivery
from maestro.domain.messages import Address, OutgoingMessage


@pytest.mark.parametrize("marks", [{}, {"more": True}, {"notice": True}, {"more": True, "notice": True}])
def test_a_frame_says_only_what_is_so(marks: dict[str, bool]) -> None:
    frame = delivery(OutgoingMessage(id=7, address=Address(platform="web", channel="c"), content="x", **marks))
    assert frame == {"type": "message", "id": 7, "channelId": "c", "content": "x", **marks}


def test_a_reply_names_what_it_replies_to() -> None:
    message = OutgoingMessage(id=7, address=Address(platform="web", channel="c"), content="x", reply_to="local:one")
    assert delivery(message)["replyTo"] == "local:one"
