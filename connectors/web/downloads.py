"""Files that agents send: who may fetch them, and how they are handed out so that no browser takes them for a page."""

from pathlib import Path
from urllib.parse import quote

from starlette.responses import FileResponse, Response

from connectors.web.config import PLATFORM
from connectors.web.identity import Guest
from connectors.web.session import House
from maestro.domain.errors import NotFound
from maestro.domain.messages import Address, OutgoingMessage

UNKNOWN_TYPE = "application/octet-stream"
HEADERS = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


async def found(house: House, guest: Guest, channel: str, delivery: int) -> OutgoingMessage:
    """Return the delivery whose file is wanted.

    Raises ``NotFound``, also where the channel is somebody else's: nobody learns what there is of others.
    """
    address = Address(platform=PLATFORM, channel=channel)
    if guest.may_open(channel):
        # What was handed over a moment ago may not be on record yet.
        sent = [*house.hub.recent(channel, delivery - 1), *await house.context.sent_since(address, delivery - 1, 1)]
        message = next((one for one in sent if one.id == delivery and one.filename), None)
        if message is not None and await house.context.open_channel(address, guest.identity.user_id):
            return message
    raise NotFound("There is no such file for you.")


def handed_out(message: OutgoingMessage) -> Response:
    """Return the file as a download; raises ``NotFound`` when its bytes are not kept any more. It reads the disk."""
    if message.path is None:
        return Response(message.content.encode(), headers=_headers(message), media_type="text/markdown")
    path = Path(message.path)
    if not path.is_file():
        raise NotFound("The file is not kept any more.")
    return FileResponse(path, headers=_headers(message), media_type=message.content_type or UNKNOWN_TYPE)


def _headers(message: OutgoingMessage) -> dict[str, str]:
    name = quote(message.filename, safe="")
    return {**HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
