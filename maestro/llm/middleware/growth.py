"""Keeps what people may see of an answer while it is written, where its platform can show it (decision record 21)."""

import asyncio

import structlog

from maestro.domain.drafts import MOST_CHARACTERS
from maestro.domain.errors import StoreBusy
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.tags.partial_text import visible_so_far
from maestro.domain.texts import storable
from maestro.llm.protocols import LLMClient
from maestro.llm.wire import heard_by
from maestro.store.store import Store
from maestro.uninterrupted import uninterrupted

log = structlog.get_logger(__name__)


class Page:
    """The text that one attempt has written so far; longer than anything that is shown, it grows no more."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self.news = asyncio.Event()

    def hear(self, piece: str) -> None:
        """Take the next piece."""
        if self._length < MOST_CHARACTERS:
            self._pieces.append(piece)
            self._length += len(piece)
            self.news.set()

    def text(self) -> str:
        """Return all of it."""
        return "".join(self._pieces)[:MOST_CHARACTERS]


class Growth:
    """Listens to one attempt at one account: a repeat, or another account, begins the same draft from nothing.

    What it keeps is a courtesy: nothing of it is ever an answer, and what goes wrong with it concerns nobody.
    """

    def __init__(self, inner: LLMClient, store: Store) -> None:
        self._inner = inner
        self._store = store

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer; nothing more of it is written once this returns."""
        if not request.shown_every:
            return await self._inner.complete(request)
        page = Page()
        with heard_by(page.hear):
            writing = asyncio.create_task(self._write(request, page))
            try:
                return await self._inner.complete(request)
            finally:
                writing.cancel()
                await uninterrupted(_ended(writing))

    async def _write(self, request: LLMRequest, page: Page) -> None:
        kept = ""
        while True:
            await page.news.wait()
            page.news.clear()
            kept = await uninterrupted(asyncio.to_thread(self._keep, request, page.text(), kept))
            await asyncio.sleep(request.shown_every)

    def _keep(self, request: LLMRequest, written: str, kept: str) -> str:
        text = visible_so_far(storable(written))
        if text and text != kept:
            try:
                with self._store.begin() as tx:
                    if not tx.steps.overtaken:  # else another process shows what it is told
                        tx.drafts.write(request.key.job_id, request.key.number, text)
            except StoreBusy as error:
                log.info("draft.postponed", job=request.key.job_id, reason=str(error))
                return kept
        return text


async def _ended(writing: "asyncio.Task[None]") -> None:
    await asyncio.wait([writing])
