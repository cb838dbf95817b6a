"""Control words: what a person says to Maestro itself; they never wait in a lane (decision 16)."""

from enum import StrEnum


class ControlWord(StrEnum):
    """The words, as they are written."""

    STOP = "/stop"
    STATUS = "/status"
    NEW = "/new"


def control_word(content: str) -> ControlWord | None:
    """Return the control word if the message is nothing else; case and surrounding space do not matter."""
    said = content.strip().lower()
    return next((word for word in ControlWord if word == said), None)
