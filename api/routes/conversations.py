"""Conversations: the list, what was said in one, and its end."""

from collections.abc import Callable, Iterable, Iterator

from starlette.responses import StreamingResponse

from api.parts import ApiParts
from api.routes.operation_router import OperationAPIRouter
from api.routes.surroundings import Number, Parts
from maestro.domain.conversations.export import as_json, as_markdown
from maestro.domain.conversations.views import ConversationDetail, SaidView
from maestro.operations.conversations import MOST, ConversationOperations

Written = Callable[[ConversationDetail, Iterable[SaidView]], Iterator[str]]

TYPES = {"json": "application/json", "md": "text/markdown; charset=utf-8"}


def _file_of(media_type: str) -> dict[int | str, dict[str, object]]:
    """Describe a download in the words of OpenAPI."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}, "description": "The conversation"}}


router = OperationAPIRouter("conversations")
router.serve("GET", "", ConversationOperations.list, "list_conversations")
router.serve("GET", "/search", ConversationOperations.search, "search_conversations")
router.serve("GET", "/{conversation_id}", ConversationOperations.show, "show_conversation")
router.serve("GET", "/{conversation_id}/messages", ConversationOperations.messages, "list_messages")


@router.get("/{conversation_id}/export.json", response_class=StreamingResponse, responses=_file_of("application/json"))
def export_json(parts: Parts, conversation_id: Number) -> StreamingResponse:
    """Download a conversation with everything that was said in it, as one JSON object."""
    return _download(parts, conversation_id, as_json, "json")


@router.get("/{conversation_id}/export.md", response_class=StreamingResponse, responses=_file_of("text/markdown"))
def export_markdown(parts: Parts, conversation_id: Number) -> StreamingResponse:
    """Download a conversation with everything that was said in it, as a text to read."""
    return _download(parts, conversation_id, as_markdown, "md")


router.serve("POST", "/{conversation_id}/close", ConversationOperations.close, "close_conversation")
router.serve("DELETE", "/{conversation_id}", ConversationOperations.delete, "delete_conversation")


def _download(parts: ApiParts, conversation_id: int, written: Written, ending: str) -> StreamingResponse:
    detail = parts.conversations.show(conversation_id)
    headers = {"Content-Disposition": f'attachment; filename="conversation-{conversation_id}.{ending}"'}
    return StreamingResponse(
        written(detail, _everything(parts, conversation_id)), media_type=TYPES[ending], headers=headers
    )


def _everything(parts: ApiParts, conversation_id: int) -> Iterator[SaidView]:
    """Yield all messages, page by page: a slow reader must not keep a connection to the store."""
    cursor: str | None = "0"
    while cursor is not None:
        page = parts.conversations.messages(conversation_id, MOST, int(cursor))
        cursor = page.next
        yield from page.items
