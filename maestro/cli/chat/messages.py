"""Pure rules of ``maestro chat``: messages to send, matching of answers, and display on a terminal."""

import re
import unicodedata
from urllib.parse import urlsplit

from maestro.cli.chat.client import Frame
from maestro.domain.messages import control_word

MEGABYTE = 1000**2


class ChatAnswer:
    """The matching of arriving messages with the message of a ``clientId``.

    The first chunk of an answer names the message it replies to. The following chunks name none: they belong to the
    answer as long as each chunk announces ``more``.
    """

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.more = False

    def includes(self, message: Frame) -> bool:
        """Return whether this message is a part of the answer."""
        reply_to = str(message.get("replyTo", ""))
        answers = reply_to.endswith(f":{self.client_id}") if reply_to else self.more
        if answers:
            self.more = bool(message.get("more"))
        return answers


def is_failure(text: str, answer: Frame) -> bool:
    """Return whether the message is Maestro's error text in place of an agent's answer."""
    return bool(answer.get("notice")) and control_word(text) is None


def mention_agent(text: str, agent: str) -> str:
    """Return the text with a mention of the agent, if an agent is given; control words stay unchanged."""
    if not agent or control_word(text) is not None or re.match(rf"\s*@{re.escape(agent)}(?!\w)", text, re.IGNORECASE):
        return text
    return f"@{agent} {text}"


def display_text(message: Frame, address: str = "") -> str:
    """Return a message as text for a terminal, with its file's address and its numbered choices.

    ``address`` is the address of the web connector, to which the path of a file is relative.
    """
    lines = [message["content"]]
    if file := message.get("file"):
        size = f"{file['size'] / 1000:.1f} kB" if file["size"] < MEGABYTE else f"{file['size'] / MEGABYTE:.1f} MB"
        lines.append(f"[file {file['filename']}, {size}: {address}{file['url']}]")
    lines.append("  ".join(f"[{n}] {button['label']}" for n, button in enumerate(message.get("buttons", ()), 1)))
    return without_controls("\n".join(filter(None, lines)))


def resolve_choice(line: str, message: Frame) -> str:
    """Return the text to send for a line: the number of a button of the newest message means its value."""
    values = {str(number): str(button["value"]) for number, button in enumerate(message.get("buttons", ()), 1)}
    return values.get(line.strip(), line)


def web_address(url: str) -> str:
    """Return the HTTP address of a web connector, from the address of its WebSocket."""
    parts = urlsplit(url)
    return f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}"


def without_controls(text: str) -> str:
    """Return a text without control characters, which could move a terminal's cursor."""
    return "".join(character for character in text if character in "\n\t" or unicodedata.category(character) != "Cc")
