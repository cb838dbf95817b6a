"""What the frame of a chunk says besides its text."""

from pathlib import Path

import pytest

from connectors.web.frames import delivery_frame, read_credentials
from maestro.domain.errors import InvalidMessage
from maestro.domain.messages import Address, Button, OutgoingMessage


@pytest.mark.parametrize("marks", [{}, {"more": True}, {"notice": True}, {"more": True, "notice": True}])
def test_a_frame_says_only_what_is_so(marks: dict[str, bool]) -> None:
    frame = delivery_frame(OutgoingMessage(id=7, address=Address(platform="web", channel="c"), content="x", **marks))
    assert frame == {"type": "message", "id": 7, "channelId": "c", "content": "x", **marks}


def test_a_reply_names_what_it_replies_to() -> None:
    message = OutgoingMessage(id=7, address=Address(platform="web", channel="c"), content="x", reply_to="local:one")
    assert delivery_frame(message)["replyTo"] == "local:one"


def test_buttons_say_what_they_say() -> None:
    buttons = (Button(label="Red", value="Red #7"), Button(label="Blue", value="Blue #7"))
    message = OutgoingMessage(id=7, address=Address(platform="web", channel="c"), content="x", buttons=buttons)
    assert delivery_frame(message)["buttons"] == [
        {"label": "Red", "value": "Red #7"},
        {"label": "Blue", "value": "Blue #7"},
    ]


def test_a_file_is_told_with_its_words_and_the_path_it_is_fetched_from(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"12345")
    message = OutgoingMessage(
        id=7,
        address=Address(platform="web", channel="a:b"),
        content="the plan",
        filename="plan.png",
        path=kept,
        content_type="image/png",
    )
    told = {"id": "7", "filename": "plan.png", "contentType": "image/png", "size": 5, "url": "/api/file/a:b/7"}
    frame = {"type": "message", "id": 7, "channelId": "a:b", "content": "the plan"}
    assert delivery_frame(message) == {**frame, "file": told}
    kept.unlink()
    assert delivery_frame(message) == {**frame, "file": {**told, "size": 0}}


def test_a_text_that_is_sent_as_a_file_is_no_content() -> None:
    message = OutgoingMessage(id=7, address=Address(platform="web", channel="c"), content="löng", filename="answer.md")
    frame = delivery_frame(message)
    assert (frame["content"], frame["file"]["size"], frame["file"]["contentType"]) == ("", 5, "text/markdown")


def test_a_client_is_a_bot_if_it_says_so_in_so_many_words() -> None:
    assert [read_credentials(fields).bot for fields in ({}, {"bot": None}, {"bot": False}, {"bot": True})] == [
        False,
        False,
        False,
        True,
    ]
    with pytest.raises(InvalidMessage, match="bot must be true or false"):
        read_credentials({"bot": "yes"})
