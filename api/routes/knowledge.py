"""REST routes of conversations, memory and skills."""

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import PlainTextResponse, StreamingResponse

from api.guards import OPERATOR, Number, Parts
from api.parts import ApiParts
from api.routes.operation_router import OperationAPIRouter, file_responses
from maestro.domain.conversations.views import ConversationDetail, MessageView, json_export_parts, markdown_export_parts
from maestro.domain.skills.views import SkillDetail
from maestro.operations.conversations import MOST, ConversationOperations
from maestro.operations.memory import MemoryOperations
from maestro.operations.skills import SkillOperations

Export = Callable[[ConversationDetail, Iterable[MessageView]], Iterator[str]]

TYPES = {"json": "application/json", "md": "text/markdown; charset=utf-8"}
MARKDOWN = {"requestBody": {"required": True, "content": {"text/markdown": {"schema": {"type": "string"}}}}}
"""The OpenAPI request body: the text of the skill file; the media type in the request is ignored."""

conversations = OperationAPIRouter("conversations")
conversations.serve_operation("GET", "", ConversationOperations.list, "list_conversations")
conversations.serve_operation("GET", "/search", ConversationOperations.search, "search_conversations")
conversations.serve_operation("GET", "/{conversation_id}", ConversationOperations.show, "show_conversation")
conversations.serve_operation("GET", "/{conversation_id}/messages", ConversationOperations.messages, "list_messages")


@conversations.get(
    "/{conversation_id}/export.json",
    response_class=StreamingResponse,
    responses=file_responses("application/json", "The conversation"),
)
def export_json(parts: Parts, conversation_id: Number) -> StreamingResponse:
    """Download a conversation with all its messages, as one JSON object."""
    return download_response(parts, conversation_id, json_export_parts, "json")


@conversations.get(
    "/{conversation_id}/export.md",
    response_class=StreamingResponse,
    responses=file_responses("text/markdown", "The conversation"),
)
def export_markdown(parts: Parts, conversation_id: Number) -> StreamingResponse:
    """Download a conversation with all its messages, as Markdown."""
    return download_response(parts, conversation_id, markdown_export_parts, "md")


conversations.serve_operation("POST", "/{conversation_id}/close", ConversationOperations.close, "close_conversation")
conversations.serve_operation("DELETE", "/{conversation_id}", ConversationOperations.delete, "delete_conversation")


def download_response(parts: ApiParts, conversation_id: int, export: Export, ending: str) -> StreamingResponse:
    detail = parts.conversations.show(conversation_id)
    headers = {"Content-Disposition": f'attachment; filename="conversation-{conversation_id}.{ending}"'}
    return StreamingResponse(
        export(detail, _all_messages(parts, conversation_id)), media_type=TYPES[ending], headers=headers
    )


def _all_messages(parts: ApiParts, conversation_id: int) -> Iterator[MessageView]:
    """Yield all messages of a conversation, page by page, so that a slow reader occupies no store connection."""
    cursor: str | None = "0"
    while cursor is not None:
        page = parts.conversations.messages(conversation_id, MOST, int(cursor))
        cursor = page.next
        yield from page.items


memory = OperationAPIRouter("memory", prefix="/api/agents/{slug}/memory")
memory.serve_operation("GET", "", MemoryOperations.show, "show_memory")


@memory.delete("", status_code=HTTPStatus.NO_CONTENT)
def clear_memory(parts: Parts, slug: str) -> None:
    """Delete all facts and states of an agent."""
    parts.memory.clear(slug, OPERATOR)


memory.serve_operation("POST", "/facts", MemoryOperations.add_fact, "add_fact", HTTPStatus.CREATED)
memory.serve_operation("PATCH", "/facts/{number}", MemoryOperations.change_fact, "change_fact")
memory.serve_operation("DELETE", "/facts/{number}", MemoryOperations.forget_fact, "forget_fact")
memory.serve_operation("PUT", "/state/{key:path}", MemoryOperations.put_state, "put_state")
memory.serve_operation("DELETE", "/state/{key:path}", MemoryOperations.forget_state, "forget_state")

skills = OperationAPIRouter("skills")
skills.serve_operation("GET", "", SkillOperations.list, "list_skills")


async def _read_body(request: Request) -> bytes:
    return await request.body()


@skills.post("", status_code=HTTPStatus.CREATED, openapi_extra=MARKDOWN)
def add_skill(parts: Parts, body: Annotated[bytes, Depends(_read_body)], replace: bool = False) -> SkillDetail:
    """Add a skill file (Markdown with front matter) to the folder; 409 for a taken slug, unless ``replace`` is true."""
    return parts.skills.add(body, OPERATOR, replace=replace)


skills.serve_operation("POST", "/try", SkillOperations.trial, "try_message")


@skills.get("/{slug}/text", response_class=PlainTextResponse, responses=file_responses("text/markdown", "The file"))
def show_text(parts: Parts, slug: str) -> PlainTextResponse:
    """Return the file of a skill, including its front matter; 409 if the file cannot be read."""
    return PlainTextResponse(parts.skills.text(slug), media_type="text/markdown")


skills.serve_operation("GET", "/{slug}", SkillOperations.show, "show_skill")
skills.serve_operation("PATCH", "/{slug}", SkillOperations.change, "change_skill")
skills.serve_operation("DELETE", "/{slug}", SkillOperations.remove, "remove_skill")
