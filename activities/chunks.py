"""The chunks of a delivery: cutting a text for its platform, storing the chunks, and choosing the next to send."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from connectors.base import Connector, EditsMessages, FailureScope, PermanentSend, Renders
from connectors.hub import SendAction, choose_action, choose_action_in_doubt
from connectors.markdown import MINIMUM, Measure, split_lazily, text_length
from maestro.domain.deliveries import IN_DOUBT, UNSENT, Delivery, DeliveryPurpose, DeliveryState, JobFile, buttons_json
from maestro.domain.drafts import IN_FILES
from maestro.domain.jobs.job import FAILURE_NOTICE, Job, is_background
from maestro.domain.messages import Button, OutgoingMessage
from maestro.domain.redaction import Redact
from maestro.store.deliveries.deliveries import DeliveryStart
from maestro.store.files import MediaFolder
from maestro.store.transaction import Transaction

MOST_CHUNKS = 6
"""The most chunks for one text; a text that needs more chunks is sent as a file, which is easier to read."""
FILENAME = "answer.md"
IN_FILE = f"\n\n… (the whole answer is in {FILENAME})"

MEGABYTE = 1000**2


@dataclass(frozen=True)
class ChunkContent:
    """The content of one chunk: a text, a text sent as the file ``filename``, or a stored ``file`` with a caption."""

    content: str
    filename: str = ""
    file: JobFile | None = None


def split_text(text: str, connector: Connector) -> Sequence[ChunkContent]:
    """Cut a text into chunks that fit into the platform's messages, by the length that the platform counts.

    A text of more than six chunks becomes its first chunk and a file with the whole text. This needs a platform that
    accepts a file of that size, and a message with room for a note about the file.
    """
    limits, measure = connector.capabilities, length_measure(connector)
    room = limits.max_length - measure(IN_FILE)
    rest = split_lazily(text, limits.max_length, measure)
    first = list(islice(rest, MOST_CHUNKS + 1))
    if len(first) <= MOST_CHUNKS or room < MINIMUM or len(text.encode()) > limits.max_file_bytes:
        return [ChunkContent(chunk) for chunk in (*first, *rest)]
    beginning = next(split_lazily(text, room, measure))
    return [ChunkContent(beginning + IN_FILE), ChunkContent(text, FILENAME)]


def length_measure(connector: Connector) -> Measure:
    """Return the function that measures the length of a text as the platform does."""
    unit = connector.capabilities.unit
    if isinstance(connector, Renders):
        render = connector.render
        return lambda text: text_length(render(text), unit)
    return lambda text: text_length(text, unit)


@dataclass(frozen=True)
class OutgoingContent:
    """The content of a job's message: a text, files with their captions, and buttons."""

    text: str
    files: Sequence[JobFile] = ()
    buttons: Sequence[Button] = ()

    def redact_secrets(self, redact: Redact) -> "OutgoingContent":
        """Return the content without secrets; a button with a secret is omitted, because the text lists its choice."""
        files = [
            JobFile(**file.model_dump() | {"filename": redact(file.filename), "caption": redact(file.caption)})
            for file in self.files
        ]
        buttons = [button for button in self.buttons if redact(button.label) == button.label]
        return OutgoingContent(redact(self.text), files, buttons)


def store_chunks(
    tx: Transaction, job: Job, start: DeliveryStart, content: OutgoingContent, connector: Connector
) -> list[Delivery]:
    """Store the chunks of a message in order; the first text replaces the draft, the message shown while it is written.

    The row of the first chunk is marked as being sent; the returned chunk does not have this mark yet. Every chunk of a
    restored job is stored as one whose earlier send has no known outcome.
    """
    since = job.backed_up_at
    draft_id = _take_draft(tx, job, connector) if start.draft else ""
    parts = split_into_chunks(content.text, content.files, connector)
    if draft_id and not (parts and parts[0].file is None and not parts[0].filename):
        parts = [ChunkContent(IN_FILES), *parts]
    last_text = max((seq for seq, part in enumerate(parts) if not part.filename), default=None)
    buttons = buttons_json(content.buttons[: connector.capabilities.max_buttons])
    reply_id = reply_message_id(tx, job, start)
    return [
        tx.deliveries.add_chunk(
            Delivery(
                job_id=job.id,
                purpose=start.purpose,
                seq=seq,
                content=part.content,
                filename=part.filename,
                digest=part.file.digest if part.file else "",
                content_type=part.file.content_type if part.file else "",
                buttons=buttons if seq == last_text else "",
                reply_to=reply_id if seq == 0 else "",
                edits=draft_id if seq == 0 else "",
                created_at=tx.now,
                state=DeliveryState.PENDING if since is None else DeliveryState.SENDING,
                tried_at=since,
                **job.address.model_dump(),
            ),
            sending=seq == 0 and since is None,
        )
        for seq, part in enumerate(parts)
    ]


def split_into_chunks(text: str, files: Sequence[JobFile], connector: Connector) -> Sequence[ChunkContent]:
    """Return the chunks of a text and its files; the text names each file that the platform does not accept."""
    limit = connector.capabilities.max_file_bytes
    refusals = [_refusal_text(file, limit) for file in files if file.size > limit]
    texts = split_text("\n\n".join(filter(None, (text, *refusals))), connector)
    return [*texts, *(ChunkContent(file.caption, file.filename, file) for file in files if file.size <= limit)]


def outgoing_content(tx: Transaction, job: Job, start: DeliveryStart) -> OutgoingContent:
    """Return the content of a job's message: only an answer has files, and only a question has buttons."""
    question = tx.jobs.questions.find_question_of_notice(job.id) if job.notice else None
    buttons = question.build_buttons() if question is not None else ()
    if start.purpose is not DeliveryPurpose.ANSWER:
        return OutgoingContent(job.notice or FAILURE_NOTICE, (), buttons)
    files = tx.deliveries.files.list_files_of_job(job.id) if start.files and not job.notice else ()
    text = tx.conversations.read_message(job.answer_id).content if job.answer_id is not None else job.said
    return OutgoingContent(text, files, buttons)


def reply_message_id(tx: Transaction, job: Job, start: DeliveryStart) -> str:
    """Return the platform's id of the message to reply to: the newest of merged messages.

    If the job asked a question, this is the message with the user's last answer.
    """
    # Only a job that waited can have an answer to its question, and each wait raises the job's run number.
    answer = tx.jobs.questions.find_last_answer(job.id) if job.run > 1 else None
    return tx.inbox.get(answer).message_id if answer else start.asked


def _take_draft(tx: Transaction, job: Job, connector: Connector) -> str:
    """Return the platform's id of the draft, which the answer replaces; empty without a draft."""
    draft = tx.deliveries.drafts.find_draft(job.id)
    if draft is None:
        return ""
    if not draft.platform_message_id or not isinstance(connector, EditsMessages):
        tx.deliveries.drafts.delete_draft(job.id)
        return ""
    tx.deliveries.drafts.hand_over_draft(job.id)
    return draft.platform_message_id


def _refusal_text(file: JobFile, limit: int) -> str:
    sizes = f"it has {file.size / MEGABYTE:.1f} MB and at most {limit / MEGABYTE:g} MB can be sent"
    return f"(The file {file.filename} is not sent here: {sizes if limit else 'this channel gets no files'}.)"


@dataclass(frozen=True)
class DueChunk:
    """The chunk to send next, and the action that sends it without a duplicate."""

    chunk: OutgoingMessage
    action: SendAction


@dataclass(frozen=True)
class ChunkQueue:
    """Chooses the next chunk of a delivery to send; ``files`` is the storage of the files that chunks send."""

    files: MediaFolder

    def take_next_chunk(self, tx: Transaction, chunks: Sequence[Delivery], connector: Connector) -> DueChunk | None:
        """Return the next chunk without a receipt, and mark it as being sent before the platform is called.

        By the account's rule, an unconfirmed chunk is skipped, or is sent again and marked as a possible duplicate.
        """
        for chunk in chunks:
            if chunk.state not in UNSENT:
                continue
            outgoing = self._build_message(tx, chunk, more=chunk is not chunks[-1])
            action = choose_action(outgoing, connector, tx.now)
            doubtful = action in (SendAction.LEAVE, SendAction.RESEND)
            if doubtful and self.apply_duplicate_rule(tx, outgoing, connector) is SendAction.LEAVE:
                continue
            tx.deliveries.mark_sending(outgoing.id, outgoing.address)
            return DueChunk(outgoing, action)
        return None

    def take_first_chunk(self, tx: Transaction, chunks: Sequence[Delivery], connector: Connector) -> DueChunk | None:
        """Return the first chunk of a message that was just stored; only a restored job's can be unconfirmed."""
        if chunks and chunks[0].state in IN_DOUBT:
            return self.take_next_chunk(tx, chunks, connector)
        return DueChunk(self._build_message(tx, chunks[0], more=len(chunks) > 1), SendAction.SEND) if chunks else None

    def apply_duplicate_rule(self, tx: Transaction, chunk: OutgoingMessage, connector: Connector) -> SendAction:
        """Record in an unconfirmed chunk's row whether the account's rule sends it again; return that action."""
        action = choose_action_in_doubt(chunk, connector)
        if action is SendAction.RESEND:
            tx.deliveries.count_repeat(chunk.id)
        else:
            tx.deliveries.mark_unconfirmed(chunk.id)
        return action

    def _build_message(self, tx: Transaction, chunk: Delivery, *, more: bool) -> OutgoingMessage:
        path = self.files.path_of_digest(chunk.digest) if chunk.digest else None
        # Whether a user waits matters only for an unconfirmed chunk, so the query is skipped for other chunks.
        unasked = chunk.state in IN_DOUBT and is_background(
            tx.jobs.delegations.read_lineage(tx.jobs.get(chunk.job_id))[-1]
        )
        return chunk.build_outgoing(has_more=more, path=path, proactive=unasked)


def find_late_failure(chunks: Sequence[Delivery]) -> PermanentSend | None:
    """Return the error of a chunk that the platform accepted and later reported as undeliverable, None without one."""
    errors = (chunk.error for chunk in chunks if chunk.state is DeliveryState.FAILED)
    return next((PermanentSend(error, FailureScope.MESSAGE) for error in errors), None)
