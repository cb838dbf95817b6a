"""Serves style sheets, scripts and images under addresses that change with their content."""

import hashlib
import mimetypes
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.guards import OpenRoute
from maestro.domain.errors import NotFound

FOLDER = Path(__file__).parent / "static"
PREFIX = "/static"
VERSION_DIGITS = 12
CACHE_FOREVER = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"

router = APIRouter(route_class=OpenRoute, include_in_schema=False)


@dataclass(frozen=True)
class Asset:
    """A file and its media type."""

    body: bytes
    media_type: str


class Assets:
    """All files of the static folder, in memory, so that no request can name a path outside of the folder.

    One version for all files is part of the path, so that relative imports between scripts stay within a version.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        self._files = {
            path.relative_to(folder).as_posix(): Asset(path.read_bytes(), _media_type(path)) for path in paths
        }
        digest = hashlib.sha256()
        for name, asset in self._files.items():
            digest.update(f"{name} {len(asset.body)} ".encode() + asset.body)
        self.version = digest.hexdigest()[:VERSION_DIGITS]

    def url(self, name: str) -> str:
        """Return the address of a file; raises ``KeyError`` for an unknown one, which is a defect of a template."""
        if name not in self._files:
            raise KeyError(name)
        return f"{PREFIX}/{self.version}/{name}"

    def find(self, path: str) -> tuple[Asset, bool]:
        """Return the file at an address below ``/static/``, and whether the address contains the current version.

        Raises ``NotFound``.
        """
        version, _, rest = path.partition("/")
        fixed = version == self.version
        asset = self._files.get(rest if fixed else path)
        if asset is None:
            raise NotFound(f"There is nothing at {PREFIX}/{path}.")
        return asset, fixed


@router.get(PREFIX + "/{path:path}")
async def serve_asset(request: Request, path: str) -> Response:
    """Return a file; browsers revalidate it each time, unless the address contains the current version."""
    assets = request.app.state.assets
    assert isinstance(assets, Assets)
    asset, fixed = assets.find(path)
    headers = {"Cache-Control": CACHE_FOREVER if fixed else REVALIDATE, "ETag": f'"{assets.version}"'}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)


def _media_type(path: Path) -> str:
    # The machine's table of media types may be wrong, and browsers refuse wrong types because of nosniff.
    known = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
    return known.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
