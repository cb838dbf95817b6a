"""Middleware that changes a request: redaction, cache marks, the chat feed, and a second try with a changed request."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from maestro.domain.agent_chat import REMINDER, Feed, build_feed, calls_chat_only, max_posts, receives_feed
from maestro.domain.context.history import drop_image_content, drop_tool_calls, limit_calls, redact_messages
from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.calls import BadRequest, CallSite, EmptyResponse, LLMFailure, ToolsUnsupported
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, PromptMessage, Role, Usage
from maestro.domain.redaction import Redact, keep_text
from maestro.llm.accounts import WindowOf, free_tokens
from maestro.llm.middleware.replay import UNREAD_POSTS, CallReader, remove_snapshot
from maestro.llm.protocols import AccountDirectory, LLMClient
from maestro.store.transaction import Transaction

ANTHROPIC = "anthropic"

CallTarget = tuple[str, str]
"""The name of an account, and the name of one of the account's models."""

GUIDANCE = "Your last reply was empty. Please reply now with a text."
GUIDANCE_WITH_TOOLS = "Your last reply was empty. Please reply now with a text, or call one of your tools."
NOTHING_TO_SAY = "I have worked on this but have no answer to give. Please ask again, perhaps in other words."
"""The answer that a user gets when the model returned an empty answer twice."""

log = structlog.get_logger(__name__)


Change = Callable[[LLMRequest], Awaitable[LLMRequest]]
"""A function that returns the changed request."""

RequestChange = Callable[[LLMRequest], LLMRequest]


class RequestChanges:
    """Middleware that applies changes to a request, in the given order, just before the recorder commits it."""

    def __init__(self, inner: LLMClient, *changes: Change) -> None:
        self._inner = inner
        self._changes = changes

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the changed request on."""
        for change in self._changes:
            request = await change(request)
        return await self._inner.complete(request)


@dataclass(slots=True)
class Redaction:
    """A change that replaces secrets in each request, by the redaction function that ``redact`` returns."""

    redact: Callable[[], Redact]

    async def __call__(self, request: LLMRequest) -> LLMRequest:
        """Return the request without secrets; prompts are scanned in a thread, because a long one takes time."""
        redact = self.redact()
        if redact is keep_text:
            return request
        messages = await asyncio.to_thread(redact_messages, request.messages, redact)
        return request.model_copy(update={"messages": messages})


@dataclass(slots=True)
class CacheMarkers:
    """A change that adds cache marks to requests for accounts of Anthropic.

    Other providers cache without marks, refuse marks, or need a separate request for each mark.
    """

    directory: AccountDirectory
    enabled: Callable[[], bool]

    async def __call__(self, request: LLMRequest) -> LLMRequest:
        """Return the request, with cache marks if its account's provider supports them."""
        account = self.directory.find(request.account) if self.enabled() else None
        if account is None or (account.provider, account.type) != (ANTHROPIC, AccountType.API_KEY):
            return request
        return request.model_copy(update={"messages": mark_cacheable_prefix(request.messages)})


def mark_cacheable_prefix(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Set cache marks on the system message and on the last message before the user's newest message.

    Both stay at the same position in every tool round, and in the request for the next user message. Messages without
    text are skipped, because a mark needs a text. Posts of #maestro between rounds are not the user's messages.
    """
    newest = max((i for i, message in enumerate(messages) if message.role is Role.USER and not message.chat), default=0)
    speakers = (Role.USER, Role.ASSISTANT)
    history = [i for i, message in enumerate(messages[:newest]) if message.role in speakers and message.content.strip()]
    system = [i for i, message in enumerate(messages[:1]) if message.role is Role.SYSTEM and message.content.strip()]
    marks = {*history[-1:], *system}
    return tuple(
        message.model_copy(update={"cache": True}) if i in marks else message for i, message in enumerate(messages)
    )


@dataclass(slots=True)
class SecondAttempt:
    """Middleware that calls again with a changed request, after an empty answer or if a model refuses tools or images.

    The process remembers which models refuse tools, or images in tool results. The circuit breaker and the limits apply
    to a second request as to any other.
    """

    inner: LLMClient
    _without_tools: set[CallTarget] = field(default_factory=set, init=False)
    _without_pictures: set[CallTarget] = field(default_factory=set, init=False)

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on, and again with a change after a failure; raises the failure when no change is left.

        Results of tools in earlier rounds stay as text, because another model may have called them. After an
        interruption, the request has its tools again, until the model refuses them.
        """
        target = (request.account, request.model)
        known, tried = self._list_known_changes(request, target), set[RequestChange]()
        changed = _apply_changes(request, known)
        while True:
            try:
                response = await self.inner.complete(changed)
            except (EmptyResponse, ToolsUnsupported, BadRequest) as failure:
                change = _CHANGES[type(failure)]
                pictures = any(message.images for message in request.messages if message.role is Role.TOOL)
                if change in tried or (change is remove_images and (change in known or not pictures)):
                    raise
                if change is remove_tools:
                    self._without_tools.add(target)
            else:
                if remove_images in tried:
                    self._without_pictures.add(target)
                return response
            # The change is outside of the handler, so that the second failure is not chained to the first.
            tried.add(change)
            changed = remove_snapshot(_apply_changes(request, known | tried))

    def _list_known_changes(self, request: LLMRequest, target: CallTarget) -> set[RequestChange]:
        """Return the changes that earlier calls of this model have shown to be needed."""
        tools = {remove_tools} if target in self._without_tools and request.tools else set()
        return tools | ({remove_images} if target in self._without_pictures else set())


def _apply_changes(request: LLMRequest, changes: Collection[RequestChange]) -> LLMRequest:
    """Return the changed request; images go first, because removing tools turns a tool message into a user message."""
    for change in (remove_images, remove_tools, add_guidance):
        if change in changes:
            request = change(request)
    return request


def remove_tools(request: LLMRequest) -> LLMRequest:
    return request.model_copy(update={"tools": (), "messages": drop_tool_calls(request.messages)})


def remove_images(request: LLMRequest) -> LLMRequest:
    return request.model_copy(update={"messages": drop_image_content(request.messages)})


def add_guidance(request: LLMRequest) -> LLMRequest:
    """Return the request with one more message, which tells the model that its answer was empty.

    The empty answer itself is left out, because several providers refuse a message without content. After a second
    empty answer to a final call, a fixed sentence is the answer.
    """
    text = GUIDANCE_WITH_TOOLS if request.tools and not request.final else GUIDANCE
    messages = (*request.messages, PromptMessage(role=Role.USER, content=text))
    return request.model_copy(update={"messages": messages, "never_empty": request.never_empty or request.final})


_CHANGES: Mapping[type[LLMFailure], RequestChange] = {
    EmptyResponse: add_guidance,
    ToolsUnsupported: remove_tools,
    BadRequest: remove_images,
}


def require_content(request: LLMRequest, response: LLMResponse) -> LLMResponse:
    """Return the answer as it is stored; raises ``EmptyResponse`` for an answer without text and tool calls.

    Tool calls in the answer to a final call are removed. With ``never_empty``, a fixed sentence replaces an empty
    answer.
    """
    if request.final and response.tool_calls:
        response = response.model_copy(update={"tool_calls": ()})
    if response.content.strip() or response.tool_calls:
        return response
    if request.never_empty:
        return response.model_copy(update={"content": NOTHING_TO_SAY})
    raise _empty_response(request, response)


def _empty_response(request: LLMRequest, response: LLMResponse) -> EmptyResponse:
    """Return the failure for an empty answer, with the token usage and cost, which are billed."""
    cause = "If this happens again, try another model."
    if response.finish_reason == "length":
        cause = (
            f"The model used up its {request.max_output_tokens} output tokens before it wrote any text; raise "
            "llm.maxOutputTokens."
        )
    elif response.finish_reason == "content_filter":
        cause = "The provider's filter blocked the answer."
    failure = EmptyResponse(
        f"{response.provider} account {response.account!r}, model {response.model!r}: {EmptyResponse.public} {cause}"
    )
    failure.site = CallSite(response.provider, response.account, response.model)
    failure.usage = Usage.model_validate(response.model_dump(include=set(Usage.model_fields)))
    failure.cost_usd = response.cost_usd
    return failure


@dataclass(slots=True)
class ChatFeed:
    """A change that adds the unread posts of #maestro by other authors as last message, and a reminder as first line.

    The chat feed is the last change, so that each attempt gets the newest posts, and they are committed with the
    request. The cursor of the agent moves when the answer is committed. A post that does not fit into the model's
    context window comes in a later call; only the first call of a job, which has most room, cuts a post. The reminder
    tells the model to ask people with ``ask_question`` instead of in the chat. It is repeated until a request with it
    was answered.
    """

    reader: CallReader
    directory: AccountDirectory
    window: WindowOf

    async def __call__(self, request: LLMRequest) -> LLMRequest:
        """Return the request with unread posts, and with a reminder if one is due."""
        if not receives_feed(request):
            return request
        snapshot = request.snapshot or await self.reader.read_snapshot(request)
        if snapshot.reminder_due:
            request = add_reminder(request)
        unread = snapshot.unread
        feed = Feed("", unread.after)
        if unread.messages:
            account = self.directory.find(request.account)
            provider = account.provider if account is not None else ""
            tokens = free_tokens(request, self.window(f"{provider}/{request.model}"))
            if len(unread.messages) == UNREAD_POSTS:
                limit = max_posts(tokens)
                unread = await asyncio.to_thread(
                    self.reader.store.read, lambda tx: tx.chat.list_unread(request.agent, limit)
                )
            feed = build_feed(unread, request.agent, tokens, may_cut=request.key.number == 1)
        log.info(
            "chat.retrieved",
            job=request.key.job_id,
            call=request.key.number,
            agent=request.agent,
            posts=feed.posts,
            after=unread.after,
            newPointer=feed.upto,
        )
        posts = (PromptMessage(role=Role.USER, content=feed.text, chat=True),) if feed.text else ()
        messages = (*request.messages, *posts)
        return request.model_copy(update={"messages": messages, "chat_after": unread.after, "chat_upto": feed.upto})


def add_reminder(request: LLMRequest) -> LLMRequest:
    """Return the request with the reminder as the first line of its system message.

    The provider's cache does not apply to this request, because its system message begins differently.
    """
    system, *rest = request.messages
    assert system.role is Role.SYSTEM, "every request begins with its system message"
    first = system.model_copy(update={"content": f"{REMINDER}\n\n{system.content}", "stable": 0})
    return request.model_copy(update={"messages": (first, *rest), "reminded": True})


def advance_chat_cursor(tx: Transaction, request: LLMRequest, response: LLMResponse) -> None:
    """Move the agent's cursor past the posts in the answered request, and update its reminder for the next request.

    A failed request and a what-if change nothing: the next request has the same posts and reminder.
    """
    if request.what_if or not receives_feed(request):
        return
    slug, job_id = request.agent, request.key.job_id
    if request.chat_upto > request.chat_after:
        tx.chat.mark_read(slug, request.chat_upto)
    if request.reminded:
        tx.chat.reminders.clear_reminder(slug, job_id)
    if calls_chat_only(limit_calls(response.tool_calls)):
        tx.chat.reminders.record_reminder(slug, job_id)
