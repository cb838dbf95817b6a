"""Control words: what a person says to Maestro itself; they never wait in a lane (docs/decisions.md: control words)."""

from dataclasses import dataclass
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


PAIR = "/pair"


@dataclass(frozen=True)
class PairingCode:
    """What a person sends to be let in: the code that an operator gave them, as they wrote it."""

    text: str


def pairing_code(content: str) -> PairingCode | None:
    """Return the code of ``/pair CODE``, an empty one where it is missing; None for what is something else."""
    first, *rest = content.split(maxsplit=1) or [""]
    return PairingCode("".join(rest).strip()) if first.lower() == PAIR else None
