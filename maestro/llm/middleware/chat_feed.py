"""The part of agents in #maestro: what each call tells of it, and what is kept of that with its answer."""

import asyncio

import structlog

from maestro.domain.chat.message import REMINDER, Feed, chat_only, feed, listens, most_posts
from maestro.domain.context.history import made
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, PromptMessage, Role
from maestro.llm.fit import WindowOf, room
from maestro.llm.middleware.call_snapshot import UNREAD_POSTS, CallReader, CallSnapshot
from maestro.llm.protocols import Directory, LLMClient
from maestro.store.transaction import Transaction

log = structlog.get_logger(__name__)


class ChatFeed:
    """Adds the posts that the agent has not read, its own left out, as one turn at the end, and a reminder before all.

    It stands just outside of the recorder, so that every attempt is told the newest, and what was told is committed
    with the request. The cursor moves with the answer. What finds no room in the model's window is told in a later
    call; only in the first call of a job, where there is as much room as there will ever be, a post is cut. The
    reminder, that the chat is no place to ask, is due until a request that showed it was answered.
    """

    def __init__(self, inner: LLMClient, reader: CallReader, directory: Directory, window: WindowOf) -> None:
        self._inner = inner
        self._reader = reader
        self._directory = directory
        self._window = window

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on with what is new, and with a reminder if one is due."""
        if listens(request):
            snapshot = await self._reader.snapshot(request)
            if snapshot.reminder_due:
                request = reminded(request)
            request = await self._with_posts(request, snapshot)
        return await self._inner.complete(request)

    async def _with_posts(self, request: LLMRequest, snapshot: CallSnapshot) -> LLMRequest:
        unread = snapshot.unread
        told = Feed("", unread.after)
        if unread.messages:
            left = self._room(request)
            if len(unread.messages) == UNREAD_POSTS:
                unread = await asyncio.to_thread(self._reader.unread, request.agent, most_posts(left))
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
        posts = (PromptMessage(role=Role.USER, content=told.text, chat=True),) if told.text else ()
        return request.model_copy(
            update={
                "messages": (*request.messages, *posts),
                "chat_after": unread.after,
                "chat_upto": told.upto,
            }
        )

    def _room(self, request: LLMRequest) -> int:
        account = self._directory.find(request.account)
        provider = account.provider if account is not None else ""
        return room(request, self._window(f"{provider}/{request.model}"))


def reminded(request: LLMRequest) -> LLMRequest:
    """Return the request with the reminder as the first line of its system message.

    Nothing of that message is worth keeping then: it begins so this once.
    """
    system, *rest = request.messages
    assert system.role is Role.SYSTEM, "every request begins with its system message"
    first = system.model_copy(update={"content": f"{REMINDER}\n\n{system.content}", "stable": 0})
    return request.model_copy(update={"messages": (first, *rest), "reminded": True})


def keep_chat_read(tx: Transaction, request: LLMRequest, response: LLMResponse) -> None:
    """Move the cursor to what the answered request told, and note what the next one has to remind of.

    A request that fails changes nothing: the next one tells and reminds of the same. Nor does a what-if.
    """
    if request.what_if or not listens(request):
        return
    slug, job_id = request.agent, request.key.job_id
    if request.chat_upto > request.chat_after:
        tx.chat.mark_read(slug, request.chat_upto)
    if request.reminded:
        tx.chat_reminders.shown(slug, job_id)
    if chat_only(made(response.tool_calls)):
        tx.chat_reminders.remind(slug, job_id)
