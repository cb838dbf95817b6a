"""Style sheets, scripts and images: read once, served under addresses that change with their content."""

import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.guards import OpenRoute
from maestro.domain.errors import NotFound

FOLDER = Path(__file__).parent / "static"
PREFIX = "/static"
DIGITS = 12
FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"

router = APIRouter(route_class=OpenRoute, include_in_schema=False)


@dataclass(frozen=True)
class Asset:
    """One file."""

    body: bytes
    media_type: str


class Assets:
    """Every file of the folder, in memory: no request can name a path outside it.

    The version is one for all of them and stands in the path, so that a script that imports another by a relative
    address gets the one it was written with.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = _read(folder)
        digest = hashlib.sha256()
        for name, asset in self._files.items():
            digest.update(f"{name} {len(asset.body)} ".encode() + asset.body)
        self.version = digest.hexdigest()[:DIGITS]

    def url(self, name: str) -> str:
        """Return the address of a file; raises ``KeyError`` for one that does not exist, which is a bug in a page."""
        if name not in self._files:
            raise KeyError(name)
        return f"{PREFIX}/{self.version}/{name}"

    def find(self, path: str) -> tuple[Asset, bool]:
        """Return the file of an address below ``/static/``, and whether its content is fixed by the address.

        Raises ``NotFound``.
        """
        version, _, rest = path.partition("/")
        fixed = version == self.version
        asset = self._files.get(rest if fixed else path)
        if asset is None:
            raise NotFound(f"There is nothing at {PREFIX}/{path}.")
        return asset, fixed


@router.get(PREFIX + "/{path:path}")
async def static(request: Request, path: str) -> Response:
    """Return a file; without the version in its address, browsers ask each time whether it changed."""
    assets = request.app.state.assets
    assert isinstance(assets, Assets)
    asset, fixed = assets.find(path)
    headers = {"Cache-Control": FOR_EVER if fixed else ASK_AGAIN, "ETag": f'"{assets.version}"'}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)


def _read(folder: Path) -> Mapping[str, Asset]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): Asset(path.read_bytes(), _type(path)) for path in files}


def _type(path: Path) -> str:
    # Content types are fixed here: the machine's own table may be wrong, and nosniff makes browsers refuse a wrong
    # type.
    known = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
    return known.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
