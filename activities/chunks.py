"""The chunks of a delivery: cutting a text for its platform, their rows in order, and the next one to send."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from connectors.base import Connector, EditsMessages, FailureScope, PermanentSend, Renders
from connectors.hub import SendAction, action_in_doubt, choose_action
from connectors.splitting import MINIMUM, Measure, chunks, length
from maestro.domain.deliveries import IN_DOUBT, UNSENT, Delivery, DeliveryPurpose, DeliveryState, JobFile, buttons_json
from maestro.domain.drafts import IN_FILES
from maestro.domain.jobs.job import FAILURE_NOTICE, Job, is_background
from maestro.domain.messages import Button, OutgoingMessage
from maestro.domain.redaction import Redact
from maestro.store.deliveries.deliveries import DeliveryStart
from maestro.store.transaction import Transaction

MOST_CHUNKS = 6
"""The number of consecutive messages beyond which a file is easier to read."""
FILENAME = "answer.md"
IN_FILE = f"\n\n… (the whole answer is in {FILENAME})"

MEGABYTE = 1000**2


@dataclass(frozen=True)
class ChunkContent:
    """The content of one chunk: a text, a text sent as the file ``filename``, or the caption of a stored ``file``."""

    content: str
    filename: str = ""
    file: JobFile | None = None


def pieces(text: str, connector: Connector) -> Sequence[ChunkContent]:
    """Cut a text into chunks for a platform, measured as the platform measures the shown text.

    A text of more than six chunks becomes its first chunk and a file with the whole text, if the platform accepts a
    file of that size and a message has room for the note about it.
    """
    able, measure = connector.capabilities, measure_of(connector)
    room = able.max_length - measure(IN_FILE)
    cut = chunks(text, able.max_length, measure)
    first = list(islice(cut, MOST_CHUNKS + 1))
    if len(first) <= MOST_CHUNKS or room < MINIMUM or len(text.encode()) > able.max_file_bytes:
        return [ChunkContent(chunk) for chunk in (*first, *cut)]
    beginning = next(chunks(text, room, measure))
    return [ChunkContent(beginning + IN_FILE), ChunkContent(text, FILENAME)]


def measure_of(connector: Connector) -> Measure:
    """Return the function with which a platform measures the length of a text."""
    unit = connector.capabilities.unit
    if isinstance(connector, Renders):
        render = connector.render
        return lambda text: length(render(text), unit)
    return lambda text: length(text, unit)


@dataclass(frozen=True)
class OutgoingContent:
    """The content of a job's message: a text, files with their captions, and buttons."""

    text: str
    files: Sequence[JobFile] = ()
    buttons: Sequence[Button] = ()

    def without_secrets(self, redact: Redact) -> "OutgoingContent":
        """Return the content without secrets; a button with a secret is omitted, because the text lists its choice."""
        files = [
            JobFile(**file.model_dump() | {"filename": redact(file.filename), "caption": redact(file.caption)})
            for file in self.files
        ]
        buttons = [button for button in self.buttons if redact(button.label) == button.label]
        return OutgoingContent(redact(self.text), files, buttons)


def store_parts(
    tx: Transaction, job: Job, start: DeliveryStart, words: OutgoingContent, connector: Connector
) -> list[Delivery]:
    """Store the chunks of a message in their order; the first text replaces the draft.

    The row of the first chunk is marked as being sent; the returned chunks have the state from before that mark.
    """
    edits = _take_draft(tx, job, connector) if start.draft else ""
    parts = parts_of(words.text, words.files, connector)
    if edits and not (parts and parts[0].file is None and not parts[0].filename):
        parts = [ChunkContent(IN_FILES), *parts]
    said = [seq for seq, part in enumerate(parts) if not part.filename]
    buttons = words.buttons[: connector.capabilities.max_buttons]
    answered = reply_to(tx, job, start)
    return [
        tx.deliveries.add(
            Delivery(
                job_id=job.id,
                purpose=start.purpose,
                seq=seq,
                content=part.content,
                filename=part.filename,
                digest=part.file.digest if part.file else "",
                content_type=part.file.content_type if part.file else "",
                buttons=buttons_json(buttons) if seq in said[-1:] else "",
                reply_to=answered if seq == 0 else "",
                edits=edits if seq == 0 else "",
                created_at=tx.now,
                **job.address.model_dump(),
            ),
            sending=seq == 0,
        )
        for seq, part in enumerate(parts)
    ]


def parts_of(text: str, files: Sequence[JobFile], connector: Connector) -> Sequence[ChunkContent]:
    """Return the chunks of a text and its files; the text names each file that the platform does not accept."""
    most = connector.capabilities.max_file_bytes
    taken = [file for file in files if file.size <= most]
    refused = [_not_sent(file, most) for file in files if file.size > most]
    words = pieces("\n\n".join(filter(None, (text, *refused))), connector)
    return [*words, *(ChunkContent(file.caption, file.filename, file) for file in taken)]


def outgoing_content(tx: Transaction, job: Job, start: DeliveryStart) -> OutgoingContent:
    """Return the content of a job's message; only an answer has files."""
    files = (
        tx.deliveries.files.of(job.id)
        if start.files and start.purpose is DeliveryPurpose.ANSWER and not job.notice
        else ()
    )
    return OutgoingContent(_text(tx, job, start.purpose), files, _buttons(tx, job))


def _text(tx: Transaction, job: Job, purpose: DeliveryPurpose) -> str:
    if purpose is DeliveryPurpose.ANSWER:
        return tx.conversations.message(job.answer_id).content if job.answer_id is not None else job.said
    return job.notice or FAILURE_NOTICE


def reply_to(tx: Transaction, job: Job, start: DeliveryStart) -> str:
    """Return the platform's id of the message to reply to: the last one of merged messages.

    For a job that asked a question, this is the user's last answer.
    """
    # Only a job that waited has answers to a question, and after a wait its run number is above 1.
    answered = tx.jobs.questions.last_answer(job.id) if job.run > 1 else None
    return tx.inbox.get(answered).message_id if answered else start.asked


def _take_draft(tx: Transaction, job: Job, connector: Connector) -> str:
    """Return the platform's id of the draft, which the answer replaces; empty without a draft."""
    draft = tx.deliveries.drafts.find(job.id)
    if draft is None:
        return ""
    if not draft.platform_message_id or not isinstance(connector, EditsMessages):
        tx.deliveries.drafts.forget(job.id)
        return ""
    tx.deliveries.drafts.take(job.id)
    return draft.platform_message_id


def _not_sent(file: JobFile, most: int) -> str:
    why = f"it has {file.size / MEGABYTE:.1f} MB and {most / MEGABYTE:g} may be sent" if most else "no files are sent"
    return f"(The file {file.filename} is not sent here: {why}.)"


def _buttons(tx: Transaction, job: Job) -> Sequence[Button]:
    """Return the choices of a job's question; none without a question or choices."""
    question = tx.jobs.questions.question_of(job.id) if job.notice else None
    return question.buttons() if question is not None else ()


@dataclass(frozen=True)
class DueChunk:
    """The chunk to send next, and how to send it safely."""

    chunk: OutgoingMessage
    move: SendAction


class ChunkQueue:
    """Chooses the next chunk of a delivery to send; ``path`` returns the path of the stored file with a digest."""

    def __init__(self, path: Callable[[str], Path]) -> None:
        self._path = path

    def next(self, tx: Transaction, chunks: Sequence[Delivery], connector: Connector) -> DueChunk | None:
        """Return the next chunk without a receipt, and mark it as being sent before the platform is called.

        An unconfirmed chunk is skipped, or sent again and marked as a possible duplicate, as the account's rule says.
        """
        for chunk in chunks:
            if chunk.state not in UNSENT:
                continue
            outgoing = self._outgoing(tx, chunk, more=chunk is not chunks[-1])
            move = choose_action(outgoing, connector, tx.now)
            if move in (SendAction.LEAVE, SendAction.RESEND) and self.rule(tx, outgoing, connector) is SendAction.LEAVE:
                continue
            tx.deliveries.sending(outgoing.id)
            return DueChunk(outgoing, move)
        return None

    def first(self, tx: Transaction, chunks: Sequence[Delivery]) -> DueChunk | None:
        """Mark and return the first chunk of a message that was just stored; no chunk of it can be unconfirmed."""
        return DueChunk(self._outgoing(tx, chunks[0], more=len(chunks) > 1), SendAction.SEND) if chunks else None

    def rule(self, tx: Transaction, chunk: OutgoingMessage, connector: Connector) -> SendAction:
        """Apply the account's rule to an unconfirmed chunk, and record the result in the chunk's row first."""
        move = action_in_doubt(chunk, connector)
        if move is SendAction.RESEND:
            tx.deliveries.repeated(chunk.id)
        else:
            tx.deliveries.unconfirmed(chunk.id)
        return move

    def _outgoing(self, tx: Transaction, chunk: Delivery, *, more: bool) -> OutgoingMessage:
        path = self._path(chunk.digest) if chunk.digest else None
        # Only an unconfirmed chunk is held back when no user waits for it, so the query is skipped for others.
        unasked = chunk.state in IN_DOUBT and _is_unasked(tx, chunk.job_id)
        return chunk.outgoing(more=more, path=path, unasked=unasked)


def after(done: OutgoingMessage, chunks: Sequence[Delivery]) -> Sequence[Delivery]:
    """Return the chunks that follow the given one."""
    place = next(place for place, chunk in enumerate(chunks) if chunk.id == done.id)
    return chunks[place + 1 :]


def undelivered(chunks: Sequence[Delivery]) -> Delivery | None:
    """Return a chunk that the platform accepted and later reported as undeliverable."""
    return next((chunk for chunk in chunks if chunk.state is DeliveryState.FAILED), None)


def require_delivered(chunks: Sequence[Delivery]) -> None:
    """Raise ``PermanentSend`` when a part of a message did not arrive."""
    failed = undelivered(chunks)
    if failed is not None:
        raise PermanentSend(failed.error, FailureScope.MESSAGE)


def _is_unasked(tx: Transaction, job_id: str) -> bool:
    """Return whether no user's message led to this job."""
    return is_background(tx.jobs.delegations.lineage(tx.jobs.get(job_id))[-1])
