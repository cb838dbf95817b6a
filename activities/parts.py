"""What a job has to say, as rows: the text cut for its platform, then its files, with buttons below the last words."""

from collections.abc import Sequence
from dataclasses import dataclass

from activities.chunks import Piece, pieces
from connectors.base import Connector, Edits
from maestro.domain.deliveries import Delivery, JobFile, Purpose, kept_buttons
from maestro.domain.drafts import IN_FILES
from maestro.domain.jobs.job import FAILURE_NOTICE, Job
from maestro.domain.messages import Button
from maestro.domain.redaction import Redact
from maestro.store.deliveries import DeliveryStart
from maestro.store.transaction import Transaction

MEGABYTE = 1000**2


@dataclass(frozen=True)
class Words:
    """What a job has to say: a text, files with what is said below them, and buttons."""

    text: str
    files: Sequence[JobFile] = ()
    buttons: Sequence[Button] = ()

    def without_secrets(self, redact: Redact) -> "Words":
        """Return it without secrets; a button that shows one is left out, for its choice stands in the text."""
        files = [
            JobFile(**file.model_dump() | {"filename": redact(file.filename), "caption": redact(file.caption)})
            for file in self.files
        ]
        buttons = [button for button in self.buttons if redact(button.label) == button.label]
        return Words(redact(self.text), files, buttons)


@dataclass(frozen=True)
class Part:
    """One chunk to be: a piece of the text, or a ``file`` with its caption."""

    content: str
    filename: str = ""
    file: JobFile | None = None


def store_parts(tx: Transaction, job: Job, start: DeliveryStart, words: Words, connector: Connector) -> list[Delivery]:
    """Keep what is to be sent, in its order; the first words take the place of what was shown of them so far.

    The row of the first chunk says that it is being sent; the chunks are returned as they were before.
    """
    edits = _shown(tx, job, connector) if start.draft else ""
    parts = parts_of(words.text, words.files, connector)
    if edits and not (parts and parts[0].file is None and not parts[0].filename):
        parts = [Part(IN_FILES), *parts]
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
                buttons=kept_buttons(buttons) if seq in said[-1:] else "",
                reply_to=answered if seq == 0 else "",
                edits=edits if seq == 0 else "",
                created_at=tx.now,
                **job.address.model_dump(),
            ),
            sending=seq == 0,
        )
        for seq, part in enumerate(parts)
    ]


def parts_of(text: str, files: Sequence[JobFile], connector: Connector) -> Sequence[Part]:
    """Return the chunks of a text and its files; what the platform does not take as a file is told in the text."""
    most = connector.capabilities.max_file_bytes
    taken = [file for file in files if file.size <= most]
    refused = [_not_sent(file, most) for file in files if file.size > most]
    words = [_part(piece) for piece in pieces("\n\n".join(filter(None, (text, *refused))), connector)]
    return [*words, *(Part(file.caption, file.filename, file) for file in taken)]


def words_of(tx: Transaction, job: Job, start: DeliveryStart) -> Words:
    """Return what a job has to say; files come with its answer alone."""
    files = tx.job_files.of(job.id) if start.files and start.purpose is Purpose.ANSWER and not job.notice else ()
    return Words(_text(tx, job, start.purpose), files, _buttons(tx, job))


def _text(tx: Transaction, job: Job, purpose: Purpose) -> str:
    if purpose is Purpose.ANSWER:
        return tx.conversations.message(job.answer_id).content if job.answer_id is not None else job.said
    return job.notice or FAILURE_NOTICE


def reply_to(tx: Transaction, job: Job, start: DeliveryStart) -> str:
    """Return the platform's id of the message that is answered: the last of those that are answered together.

    Of a job that asked, it is the last answer it was given.
    """
    # Only a job that waited can have been answered, and its next run is another.
    answered = tx.questions.last_answer(job.id) if job.run > 1 else None
    return tx.inbox.get(answered).message_id if answered else start.asked


def _shown(tx: Transaction, job: Job, connector: Connector) -> str:
    """Return what the platform knows the message as that shows what was written so far, empty where there is none."""
    draft = tx.drafts.find(job.id)
    if draft is None:
        return ""
    if not draft.platform_message_id or not isinstance(connector, Edits):
        tx.drafts.forget(job.id)
        return ""
    tx.drafts.take(job.id)
    return draft.platform_message_id


def _part(piece: Piece) -> Part:
    return Part(piece.content, piece.filename)


def _not_sent(file: JobFile, most: int) -> str:
    why = f"it has {file.size / MEGABYTE:.1f} MB and {most / MEGABYTE:g} may be sent" if most else "no files are sent"
    return f"(The file {file.filename} is not sent here: {why}.)"


def _buttons(tx: Transaction, job: Job) -> Sequence[Button]:
    """Return the choices of the question that a job puts to people, if it puts one that has any."""
    question = tx.questions.put_by(job.id) if job.notice else None
    return question.buttons() if question is not None else ()
