"""Prompts as references, their parts kept once and compressed (decision 18)."""

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam
from sqlalchemy.dialects.sqlite import insert
from sqlmodel import col, select

from maestro.domain.context.composition import Composition
from maestro.domain.context.layers import LAYER_SIZES
from maestro.domain.conversations.conversation import ArchivedMessage, Message
from maestro.domain.errors import NotFound
from maestro.domain.llm.calls import Prompt, PromptPart
from maestro.domain.llm.prompts import TOOL_CALLS, ComposedTurn, PromptMessage, Turn, TurnText
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository

BEGINNING = 4_000
"""Bytes of a long text that are read to show how it begins."""

_as_json = json.JSONEncoder(separators=(",", ":")).encode


class Prompts(Repository):
    """What the models were told."""

    _KEEP = Prepared(insert(PromptPart))
    _ADD = Prepared(insert(Prompt))
    _IS_KEPT = Prepared(select(PromptPart.digest).where(col(PromptPart.digest) == bindparam("its_digest")))
    _TEXT = Prepared(select(PromptPart.body).where(col(PromptPart.digest) == bindparam("its_digest")))
    _SAID = tuple(
        select(table.id, table.content).where(col(table.id).in_(bindparam("ids", expanding=True)))
        for table in (Message, ArchivedMessage)
    )

    def keep(self, text: str) -> str:
        """Keep a text and return its SHA-256; the same text is kept once."""
        raw = text.encode()
        digest = hashlib.sha256(raw).hexdigest()
        # Most of a prompt is that of the one before: it need not be compressed again.
        if self._row(self._IS_KEPT, its_digest=digest) is None:
            self._change(self._KEEP, digest=digest, body=_compressed(raw))
        return digest

    def text(self, digest: str) -> str:
        """Return a kept text; raises ``NotFound``."""
        body: bytes | None = self._value(self._TEXT, its_digest=digest)
        if body is None:
            raise NotFound(f"the prompt part {digest} does not exist")
        return zlib.decompress(body).decode()

    def beginning(self, digest: str) -> str:
        """Return the beginning of a kept text, empty when there is none, or it was deleted."""
        body: bytes | None = self._value(self._TEXT, its_digest=digest) if digest else None
        return zlib.decompressobj().decompress(body, BEGINNING).decode(errors="ignore") if body is not None else ""

    def pack(self, messages: Sequence[PromptMessage]) -> tuple[Turn, ...]:
        """Turn a prompt into references, keeping every text that no message row holds."""
        return tuple(map(self._packed, messages))

    def unpack(self, turns: Sequence[Turn]) -> tuple[PromptMessage, ...]:
        """Turn references back into the very same prompt."""
        said = self._said([turn.message_id for turn in turns if turn.message_id is not None])
        return tuple(self._unpacked(turn, said) for turn in turns)

    def add(self, job_id: str, composed: Composition) -> int:
        """Store the prompt of a job and return its id."""
        return self._insert(
            self._ADD,
            id=None,
            job_id=job_id,
            turns=_as_json([self._reference(turn) for turn in composed.messages]),
            layers=LAYER_SIZES.dump_json(composed.layers).decode(),
            tokens=composed.tokens,
            created_at=self._now,
        )

    def of_job(self, job_id: str) -> Prompt:
        """Return the prompt of a job; raises ``NotFound``."""
        prompt = self._session.exec(select(Prompt).where(Prompt.job_id == job_id)).first()
        if prompt is None:
            raise NotFound(f"job {job_id} has no prompt yet")
        return prompt

    def _reference(self, turn: ComposedTurn) -> TurnText:
        """Return the fields of the turn that are not what ``Turn`` takes for granted."""
        role, content, stable, images, message_id = turn
        if message_id is not None:
            found = TurnText(role=role, message_id=message_id)
        elif stable:
            found = TurnText(role=role, stable=self.keep(content[:stable]), digest=self.keep(content[stable:]))
        else:
            found = TurnText(role=role, digest=self.keep(content))
        if images:
            found["images"] = [image.model_dump() for image in images]
        return found

    def _packed(self, message: PromptMessage) -> Turn:
        return Turn(
            role=message.role,
            images=message.images,
            message_id=message.message_id,
            stable=self.keep(message.content[: message.stable]) if message.stable else "",
            digest="" if message.message_id is not None else self.keep(message.content[message.stable :]),
            calls=self.keep(TOOL_CALLS.dump_json(message.tool_calls).decode()) if message.tool_calls else "",
            call_id=message.call_id,
            tool=message.tool,
            cache=message.cache,
            chat=message.chat,
        )

    def _unpacked(self, turn: Turn, said: Mapping[int, str]) -> PromptMessage:
        stable = self.text(turn.stable) if turn.stable else ""
        rest = said[turn.message_id] if turn.message_id is not None else self.text(turn.digest)
        return PromptMessage(
            role=turn.role,
            images=turn.images,
            message_id=turn.message_id,
            content=stable + rest,
            stable=len(stable),
            tool_calls=TOOL_CALLS.validate_json(self.text(turn.calls)) if turn.calls else (),
            call_id=turn.call_id,
            tool=turn.tool,
            cache=turn.cache,
            chat=turn.chat,
        )

    def _said(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the texts of messages by id, archived ones too; raises ``NotFound`` when one was deleted."""
        found: dict[int, str] = {}
        for said in self._SAID:
            wanted = sorted(set(ids) - set(found))
            if wanted:
                found.update((row_id, content) for row_id, content in self._run(said, ids=wanted))
        missing = set(ids) - set(found)
        if missing:
            raise NotFound(f"the messages {sorted(missing)} of a stored prompt were deleted")
        return found


def _compressed(raw: bytes) -> bytes:
    """Return what ``zlib.decompress`` takes back.

    What zlib lays out for texts of any length takes longer than to compress a short one; so it is told the length.
    """
    window = min(max(len(raw).bit_length(), 9), zlib.MAX_WBITS)
    packer = zlib.compressobj(6, wbits=window, memLevel=min(window - 7, zlib.DEF_MEM_LEVEL))
    return packer.compress(raw) + packer.flush()
