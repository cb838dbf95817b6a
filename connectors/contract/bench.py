"""What the tests of the contract need of a platform: a local server, and a connector that is connected to it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from connectors.base import Connector
from connectors.contract.context import MemoryContext
from maestro.domain.messages import Address


class Fault(StrEnum):
    """How the next send goes wrong."""

    BUSY = "the platform asks to come back later, and takes nothing"
    BROKEN = "the platform has trouble of its own, and takes nothing"
    CUT = "the platform takes the message, and the connection is cut before it says so"
    NO_CHANNEL = "we may not write to this channel, or it is gone"
    BAD_TOKEN = "the token is not valid any more"  # noqa: S105 - no token
    BAD_MESSAGE = "the platform does not take this message, and never will"


class Bench(Protocol):
    """A connector that runs, and the platform it is connected to.

    ``place`` is a channel in which a person may write and we may send; ``token`` is a secret of the account, empty
    where there is none. ``faults`` are those that the platform knows.
    """

    context: MemoryContext
    place: Address
    token: str
    faults: frozenset[Fault]

    @property
    def connector(self) -> Connector:
        """The connector that runs now."""
        ...

    async def say(self, text: str) -> str:
        """Let a person write to ``place``; return the id that the message has in the inbox."""
        ...

    async def repeat(self, message_id: str) -> None:
        """Let the platform deliver a message again that it delivered before."""
        ...

    async def come_back(self) -> None:
        """End the connector and connect another one with the same context.

        What the platform was not told that we have comes again, by itself or because the connector asks for it.
        """
        ...

    def arm(self, fault: Fault) -> None:
        """Let the next send go wrong."""
        ...

    async def posts(self) -> Sequence[str]:
        """Return what our account wrote to ``place``, oldest first, as the platform has it."""
        ...
