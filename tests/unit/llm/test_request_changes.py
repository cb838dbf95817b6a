"""What of a prompt Anthropic is asked to keep."""

import pytest

from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.prompts import PromptMessage, Role, ToolCall
from maestro.llm.middleware.request_changes import CacheMarkers, RequestChanges, mark_cacheable_prefix
from maestro.llm.protocols import Account
from tests.support.llm_fakes import Accounts, Scripted
from tests.support.llm_requests import request_of, response_of

SYSTEM = PromptMessage(role=Role.SYSTEM, content="Be brief.")
CALL = ToolCall(id="call_1_0", name="search", arguments="{}")
DIRECTORY = Accounts(
    [
        Account("claude", "anthropic", "claude-sonnet-4-6"),
        Account("command", "anthropic", "claude-sonnet-4-6", AccountType.CLI),
        Account("gpt", "openai", "gpt-4o-mini"),
        Account("gemini", "gemini", "gemini-2.5-flash"),
    ]
)


def user(content: str) -> PromptMessage:
    return PromptMessage(role=Role.USER, content=content)


def assistant(content: str, *calls: ToolCall) -> PromptMessage:
    return PromptMessage(role=Role.ASSISTANT, content=content, tool_calls=calls)


def tool(content: str) -> PromptMessage:
    return PromptMessage(role=Role.TOOL, content=content, call_id=CALL.id, tool=CALL.name)


def marks(*messages: PromptMessage) -> list[str]:
    """The texts that are marked for the cache."""
    return [message.content for message in mark_cacheable_prefix(messages) if message.cache]


def test_the_system_message_and_the_end_of_the_history_are_marked() -> None:
    assert marks(SYSTEM, user("one"), assistant("two"), user("three")) == ["Be brief.", "two"]


def test_without_history_the_system_message_alone_is_marked() -> None:
    assert marks(SYSTEM, user("one")) == ["Be brief."]


def test_the_marks_stay_where_they_are_in_a_round_of_tools() -> None:
    before = (SYSTEM, user("one"), assistant("two"), user("three"))
    assert marks(*before, assistant("let me look", CALL), tool("found")) == marks(*before)


def test_posts_of_the_chat_between_rounds_move_no_mark() -> None:
    before = (SYSTEM, user("one"), assistant("two"), user("three"))
    posts = PromptMessage(role=Role.USER, content="posts", chat=True)
    assert marks(*before, posts, assistant("let me look", CALL), tool("found"), posts) == marks(*before)


def test_a_turn_without_text_is_passed_over() -> None:
    assert marks(SYSTEM, user("one"), assistant(" ", CALL), tool("found"), user("two")) == ["Be brief.", "one"]
    assert marks(SYSTEM.model_copy(update={"content": " "}), user("one")) == []


def test_nothing_but_marks_changes_and_they_are_always_the_same() -> None:
    messages = (SYSTEM, user("one"), assistant("two"), user("three"))
    once = mark_cacheable_prefix(messages)
    assert mark_cacheable_prefix(once) == once
    assert tuple(message.model_copy(update={"cache": False}) for message in once) == messages


@pytest.mark.parametrize(
    ("account", "count"), [("claude", 1), ("command", 0), ("gpt", 0), ("gemini", 0), ("nobody", 0)]
)
async def test_only_accounts_of_anthropic_over_http_get_marks(account: str, count: int) -> None:
    model = Scripted(response_of("hello"))
    request = request_of().model_copy(update={"account": account})
    await RequestChanges(model, CacheMarkers(DIRECTORY, lambda: True)).complete(request)
    assert sum(message.cache for message in model.asked[0].messages) == count
    assert count or model.asked[0] == request


async def test_the_setting_turns_it_off_at_once() -> None:
    model, enabled = Scripted(response_of("hello"), response_of("hello")), iter([True, False])
    client = RequestChanges(model, CacheMarkers(DIRECTORY, lambda: next(enabled)))
    for _ in range(2):
        await client.complete(request_of().model_copy(update={"account": "claude"}))
    assert [asked.messages[0].cache for asked in model.asked] == [True, False]
