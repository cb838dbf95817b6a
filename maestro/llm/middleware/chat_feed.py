"""Tells an agent what others posted in #maestro: the last step before a request leaves (specification 002, 5)."""

import asyncio

import structlog

from maestro.domain.chat.feed import Feed, feed, listens, most_posts
from maestro.domain.chat.message import Unread
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, PromptMessage, Role
from maestro.llm.fit import WindowOf, room
from maestro.llm.protocols import Directory, LLMClient
from maestro.store.store import Store

log = structlog.get_logger(__name__)


class ChatFeed:
    """Adds the posts that the agent has not read, its own left out, as one turn at the end.

    It stands just outside of the recorder, so that every attempt is told the newest, and what was told is committed
    with the request. The cursor moves with the answer. What finds no room in the model's window is told in a later
    call; only in the first call of a job, where there is as much room as there will ever be, a post is cut.
    """

    def __init__(self, inner: LLMClient, store: Store, directory: Directory, window: WindowOf) -> None:
        self._inner = inner
        self._store = store
        self._directory = directory
        self._window = window

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on with what is new."""
        if listens(request):
            request = await asyncio.to_thread(self._told, request)
        return await self._inner.complete(request)

    def _told(self, request: LLMRequest) -> LLMRequest:
        unread = self._unread(request, 1)
        told = Feed("", unread.after)
        if unread.messages:
            left = self._room(request)
            unread = self._unread(request, most_posts(left))
            told = feed(unread, request.agent, left, may_cut=request.key.number == 1)
        log.info(
            "chat.retrieved",
            job=request.key.job_id,
            call=request.key.number,
            agent=request.agent,
            posts=told.posts,
            after=unread.after,
            newPointer=told.upto,
        )
        turn = (PromptMessage(role=Role.USER, content=told.text, chat=True),) if told.text else ()
        return request.model_copy(
            update={
                "messages": (*request.messages, *turn),
                "chat_after": unread.after,
                "chat_upto": told.upto,
            }
        )

    def _unread(self, request: LLMRequest, limit: int) -> Unread:
        """Return the oldest unread posts: a session may have more than anybody wants to have in memory at once."""
        with self._store.view() as tx:
            return tx.chat.unread(request.agent, limit)

    def _room(self, request: LLMRequest) -> int:
        account = self._directory.find(request.account)
        provider = account.provider if account is not None else ""
        return room(request, self._window(f"{provider}/{request.model}"))
