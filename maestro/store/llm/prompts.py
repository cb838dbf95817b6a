"""Queries for prompts and model requests; their texts are compressed, and each text is stored once.

See docs/decisions.md: retention.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import LargeBinary, bindparam, cast, null, union_all
from sqlmodel import col, select

from maestro.domain.context.composition import Composition
from maestro.domain.context.layers import LAYER_SIZES, LayerSize
from maestro.domain.context.views import RecordedCall
from maestro.domain.conversations.conversation import ArchivedMessage, Message
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import Job
from maestro.domain.llm.calls import LLMCall, Prompt, PromptPart
from maestro.domain.llm.prompts import (
    TOOL_CALLS,
    TOOL_SPECS,
    CallPurpose,
    ComposedTurn,
    LLMRequest,
    PromptMessage,
    StoredRequest,
    StoredTurn,
    StoredTurnJson,
)
from maestro.store.engine.repository import Repository, require_found
from maestro.store.engine.statements import PreparedStatement, insert, is_in_list, write_json_list

BEGINNING = 4_000
"""The most bytes of a text that ``Prompts.read_beginning`` returns."""

_OF_REQUEST = LLMRequest.model_fields.keys() & StoredRequest.model_fields.keys() - {"tools"}
"""The fields that a stored request copies from a request; for the tools it has a digest instead."""
_OF_MESSAGE = PromptMessage.model_fields.keys() & StoredTurn.model_fields.keys() - {"stable"}
"""The fields that a stored message copies from a message; for the stable beginning it has a digest instead."""

_as_json = json.JSONEncoder(separators=(",", ":")).encode


class Prompts(Repository):
    """Queries for the prompts of jobs, and for the texts of prompts and requests."""

    _KEEP = PreparedStatement(insert(PromptPart).on_conflict_do_nothing())
    _ADD = PreparedStatement(insert(Prompt))
    _ARE_KEPT = PreparedStatement(select(PromptPart.digest).where(is_in_list(col(PromptPart.digest), "digests")))
    _TEXT = PreparedStatement(select(PromptPart.body).where(col(PromptPart.digest) == bindparam("its_digest")))
    _TEXTS = PreparedStatement(
        union_all(
            select(Message.id, col(Message.content), null(), cast(null(), LargeBinary)).where(
                is_in_list(col(Message.id), "ids")
            ),
            select(ArchivedMessage.id, col(ArchivedMessage.content), null(), null()).where(
                is_in_list(col(ArchivedMessage.id), "ids")
            ),
            select(null(), null(), PromptPart.digest, PromptPart.body).where(
                is_in_list(col(PromptPart.digest), "digests")
            ),
        )
    )

    def store_text(self, text: str) -> str:
        """Store a text, if it is not yet stored; return its SHA-256."""
        texts = TextsByDigest()
        digest = texts.add(text)
        self._store_texts(texts)
        return digest

    def read_text(self, digest: str) -> str:
        """Return the stored text with this SHA-256; raises ``NotFound``."""
        body = require_found(
            self._read_value(self._TEXT, its_digest=digest), f"the prompt part {digest} does not exist"
        )
        return zlib.decompress(body).decode()

    def read_beginning(self, digest: str) -> str:
        """Return the first ``BEGINNING`` bytes of a stored text; empty if the text does not exist."""
        body: bytes | None = self._read_value(self._TEXT, its_digest=digest) if digest else None
        return zlib.decompressobj().decompress(body, BEGINNING).decode(errors="ignore") if body is not None else ""

    def store_request(self, packed: "PackedRequest", stored_digests: frozenset[str] | None = None) -> str:
        """Store all parts of a model request, and return the digest of the request.

        ``stored_digests`` names the request's texts that are already stored, if the caller has read them in this
        transaction.
        """
        self._store_texts(packed.texts, stored_digests)
        return packed.digest

    def restore_messages(self, turns: Sequence[StoredTurn]) -> tuple[PromptMessage, ...]:
        """Return a prompt's messages with the texts to which they refer; raises ``NotFound`` for a deleted text."""
        texts = self._read_texts(turns)
        return tuple(_unpacked_message(turn, texts) for turn in turns)

    def add_prompt(self, job_id: str, composed: Composition) -> int:
        """Store the prompt of a job and return its id."""
        texts = TextsByDigest()
        turns = [_turn_reference(turn, texts) for turn in composed.messages]
        self._store_texts(texts)
        return self._insert_row(
            self._ADD,
            id=None,
            job_id=job_id,
            turns=_as_json(turns),
            layers=LAYER_SIZES.dump_json(composed.layers).decode(),
            tokens=composed.tokens,
            created_at=self._now,
        )

    def get_prompt_of_job(self, job_id: str) -> Prompt:
        """Return the prompt of a job as a read-only row; raises ``NotFound``."""
        return require_found(self._read_model_by(Prompt, job_id=job_id), f"job {job_id} has no prompt yet")

    def read_layer_sizes(self, job_id: str) -> tuple[LayerSize, ...]:
        """Return the size of each layer (section) of a job's prompt, in characters and tokens; empty without one."""
        sizes = self._find_first(select(Prompt.layers).where(Prompt.job_id == job_id))
        return LAYER_SIZES.validate_json(sizes) if sizes else ()

    def _store_texts(self, texts: "TextsByDigest", stored_digests: frozenset[str] | None = None) -> None:
        """Store those of the given texts that are not yet stored."""
        if stored_digests is None:
            stored_digests = frozenset(
                digest for (digest,) in self._read_rows(self._ARE_KEPT, digests=write_json_list(texts.raw))
            )
        # Another job may store the same texts now; in one order, neither waits for a text of the other.
        for digest, raw in sorted(texts.raw.items()):
            if digest not in stored_digests:
                self._write(self._KEEP, digest=digest, body=_compressed(raw))

    def _read_texts(self, turns: Sequence[StoredTurn]) -> "PromptTexts":
        """Return the texts to which the messages of a prompt refer; raises ``NotFound`` for a deleted message."""
        ids = {turn.message_id for turn in turns if turn.message_id is not None}
        digests = {digest for turn in turns for digest in (turn.stable, turn.digest, turn.calls) if digest}
        messages: dict[int, str] = {}
        parts: dict[str, bytes] = {}
        for message_id, content, digest, body in self._read_rows(
            self._TEXTS, ids=write_json_list(ids), digests=write_json_list(digests)
        ):
            if digest is None:
                messages[message_id] = content
            else:
                parts[digest] = body
        missing = ids - set(messages)
        if missing:
            raise NotFound(f"the messages {sorted(missing)} of a stored prompt were deleted")
        return PromptTexts(messages, parts)


class TextsByDigest:
    """The texts of a prompt or request that are to be stored, by their SHA-256."""

    def __init__(self) -> None:
        self.raw: dict[str, bytes] = {}

    def add(self, text: str) -> str:
        """Add a text and return its SHA-256."""
        raw = text.encode()
        digest = hashlib.sha256(raw).hexdigest()
        self.raw[digest] = raw
        return digest


class PackedRequest(NamedTuple):
    """The digest of a model request, and the texts to store for the request."""

    digest: str
    texts: TextsByDigest


def packed_request(request: LLMRequest) -> PackedRequest:
    """Split a model request into texts that are stored once each."""
    texts = TextsByDigest()
    stored = StoredRequest(
        **{name: getattr(request, name) for name in _OF_REQUEST},
        turns=tuple(_packed_message(message, texts) for message in request.messages),
        tools=texts.add(TOOL_SPECS.dump_json(request.tools).decode()) if request.tools else "",
    )
    return PackedRequest(texts.add(stored.model_dump_json()), texts)


class PromptTexts(NamedTuple):
    """The texts to which the messages of a prompt refer: texts of messages by id, other parts by digest."""

    messages: Mapping[int, str]
    parts: Mapping[str, bytes]

    def get_text(self, digest: str) -> str:
        """Return the text of a part by its digest; raises ``NotFound``."""
        body = require_found(self.parts.get(digest), f"the prompt part {digest} does not exist")
        return zlib.decompress(body).decode()


def _turn_reference(turn: ComposedTurn, texts: TextsByDigest) -> StoredTurnJson:
    """Return the stored form of a prompt's message, without the fields that have default values."""
    role, content, stable, images, message_id = turn
    if message_id is not None:
        stored = StoredTurnJson(role=role, message_id=message_id)
    elif stable:
        stored = StoredTurnJson(role=role, stable=texts.add(content[:stable]), digest=texts.add(content[stable:]))
    else:
        stored = StoredTurnJson(role=role, digest=texts.add(content))
    if images:
        stored["images"] = [image.model_dump() for image in images]
    return stored


def _packed_message(message: PromptMessage, texts: TextsByDigest) -> StoredTurn:
    return StoredTurn(
        **{name: getattr(message, name) for name in _OF_MESSAGE},
        stable=texts.add(message.content[: message.stable]) if message.stable else "",
        digest="" if message.message_id is not None else texts.add(message.content[message.stable :]),
        calls=texts.add(TOOL_CALLS.dump_json(message.tool_calls).decode()) if message.tool_calls else "",
    )


def _unpacked_message(turn: StoredTurn, texts: PromptTexts) -> PromptMessage:
    stable = texts.get_text(turn.stable) if turn.stable else ""
    rest = texts.messages[turn.message_id] if turn.message_id is not None else texts.get_text(turn.digest)
    return PromptMessage(
        **{name: getattr(turn, name) for name in _OF_MESSAGE},
        content=stable + rest,
        stable=len(stable),
        tool_calls=TOOL_CALLS.validate_json(texts.get_text(turn.calls)) if turn.calls else (),
    )


def _compressed(raw: bytes) -> bytes:
    """Compress a text for ``zlib.decompress``.

    zlib's buffers fit the text's length: allocating the default ones takes longer than compressing a short text.
    """
    window = min(max(len(raw).bit_length(), 9), zlib.MAX_WBITS)
    packer = zlib.compressobj(6, wbits=window, memLevel=min(window - 7, zlib.DEF_MEM_LEVEL))
    return packer.compress(raw) + packer.flush()


class ModelRequests(Repository):
    """Queries for the requests of a job's model calls; every method raises ``NotFound`` for a missing job."""

    def list_calls(self, job_id: str) -> Sequence[LLMCall]:
        """Return all attempts at the model calls of a job, oldest first."""
        self._require_job(job_id)
        return self._find_all(select(LLMCall).where(LLMCall.job_id == job_id).order_by(col(LLMCall.id)))

    def find_default_call_id(self, job_id: str) -> int:
        """Return the id of the call that pages show first: the last call for an answer, else the last call.

        Raises ``NotFound`` when the job called no model.
        """
        calls = self.list_calls(job_id)
        if not calls:
            raise NotFound(f"job {job_id} has called no model")
        answers = [call for call in calls if call.purpose is CallPurpose.ANSWER]
        return (answers or calls)[-1].id or 0

    def get_recorded_call(self, job_id: str, call_id: int) -> RecordedCall:
        """Return the request of one model call, as it was stored before it was sent.

        Raises ``NotFound`` when the job has no such call, or when the request was deleted with its conversation.
        """
        job, call = self._require_job(job_id), self._session.get(LLMCall, call_id)
        if call is None or call.job_id != job_id:
            raise NotFound(f"job {job_id} has no model call {call_id}; `maestro jobs show {job_id}` shows its calls")
        if job.erased:
            raise NotFound(f"the requests of job {job_id} were deleted with its conversation")
        if job.calls_deleted:
            raise NotFound(f"the requests of job {job_id} were deleted because of their age (retention.callsDays)")
        prompts = Prompts(self._link, self._now)
        request = StoredRequest.model_validate_json(prompts.read_text(call.request))
        return RecordedCall(
            call=call,
            request=request,
            messages=prompts.restore_messages(request.turns),
            tools=TOOL_SPECS.validate_json(prompts.read_text(request.tools)) if request.tools else (),
            layers=prompts.read_layer_sizes(job_id) if call.purpose is CallPurpose.ANSWER else (),
        )

    def _require_job(self, job_id: str) -> Job:
        return require_found(self._session.get(Job, job_id), f"job {job_id} does not exist")
