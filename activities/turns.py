"""Whose turn it is among the chunks of a message, and what is safe with one that may have arrived already."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from connectors.base import Connector, PermanentSend, Scope
from connectors.doubt import Move, move_for, unsettled
from maestro.domain.deliveries import IN_DOUBT, UNSENT, Delivery, DeliveryState
from maestro.domain.jobs.background import is_background
from maestro.domain.messages import OutgoingMessage
from maestro.store.transaction import Transaction


@dataclass(frozen=True)
class Turn:
    """A chunk whose turn it is, and what is safe with it."""

    chunk: OutgoingMessage
    move: Move


class Turns:
    """Lets one chunk after another have its turn; ``path`` says where the kept file of a digest is."""

    def __init__(self, path: Callable[[str], Path]) -> None:
        self._path = path

    def next(self, tx: Transaction, chunks: Sequence[Delivery], connector: Connector) -> Turn | None:
        """Return the next chunk without a receipt, marked as being sent before the platform is called.

        One of which nobody can say whether it arrived is left as that, or marked as one that may be there twice.
        """
        for chunk in chunks:
            if chunk.state not in UNSENT:
                continue
            outgoing = self._outgoing(tx, chunk, more=chunk is not chunks[-1])
            move = move_for(outgoing, connector, tx.now)
            if move in (Move.LEAVE, Move.RESEND) and self.rule(tx, outgoing, connector) is Move.LEAVE:
                continue
            tx.deliveries.sending(outgoing.id)
            return Turn(outgoing, move)
        return None

    def first(self, tx: Transaction, chunks: Sequence[Delivery]) -> Turn | None:
        """Return the first chunk of a message that was stored just now, as being sent: none of it is in doubt."""
        return Turn(self._outgoing(tx, chunks[0], more=len(chunks) > 1), Move.SEND) if chunks else None

    def rule(self, tx: Transaction, chunk: OutgoingMessage, connector: Connector) -> Move:
        """Return what the account's rule says of a chunk in doubt, once its row says so too."""
        move = unsettled(chunk, connector)
        if move is Move.RESEND:
            tx.deliveries.repeated(chunk.id)
        else:
            tx.deliveries.unconfirmed(chunk.id)
        return move

    def _outgoing(self, tx: Transaction, chunk: Delivery, *, more: bool) -> OutgoingMessage:
        path = self._path(chunk.digest) if chunk.digest else None
        # Only what is in doubt is ever held back because nobody waits for it.
        unasked = chunk.state in IN_DOUBT and _is_unasked(tx, chunk.job_id)
        return chunk.outgoing(more=more, path=path, unasked=unasked)


def after(done: OutgoingMessage, chunks: Sequence[Delivery]) -> Sequence[Delivery]:
    """Return the chunks that come after one of them."""
    place = next(place for place, chunk in enumerate(chunks) if chunk.id == done.id)
    return chunks[place + 1 :]


def undelivered(chunks: Sequence[Delivery]) -> Delivery | None:
    """Return a chunk that the platform took and said later that it could not bring to its receiver."""
    return next((chunk for chunk in chunks if chunk.state is DeliveryState.FAILED), None)


def require_delivered(chunks: Sequence[Delivery]) -> None:
    """Raise ``PermanentSend`` when a part of a message did not arrive."""
    failed = undelivered(chunks)
    if failed is not None:
        raise PermanentSend(failed.error, Scope.MESSAGE)


def _is_unasked(tx: Transaction, job_id: str) -> bool:
    """Say whether no person began what led to a job."""
    return is_background(tx.delegations.lineage(tx.jobs.get(job_id))[-1])
