"""Serves style sheets, scripts and images under addresses that change with their content."""

import hashlib
import mimetypes
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.guards import OpenRoute
from maestro.domain.errors import NotFound

FOLDER = Path(__file__).parent / "static"
PREFIX = "/static"
CACHE_FOREVER = "public, max-age=31536000, immutable"

router = APIRouter(route_class=OpenRoute, include_in_schema=False)


class Assets:
    """All static files with their media types, held in memory: no request can read a path outside of the folder.

    All addresses contain one version of all files, so that a script imports other scripts of the same version.
    """

    def __init__(self) -> None:
        paths = sorted(path for path in FOLDER.rglob("*") if path.is_file())
        self.files = {path.relative_to(FOLDER).as_posix(): (path.read_bytes(), _media_type(path)) for path in paths}
        digest = hashlib.sha256()
        for name, (body, _) in self.files.items():
            digest.update(f"{name} {len(body)} ".encode() + body)
        self.version = digest.hexdigest()[:12]

    def url(self, name: str) -> str:
        """Return the address of a static file; raises ``KeyError`` for an unknown name, a defect of a template."""
        if name not in self.files:
            raise KeyError(name)
        return f"{PREFIX}/{self.version}/{name}"


@router.get(PREFIX + "/{path:path}")
async def serve_asset(request: Request, path: str) -> Response:
    """Return a static file; browsers may cache it without asking only if the address has the current version."""
    assets: Assets = request.app.state.assets
    version, _, rest = path.partition("/")
    fixed = version == assets.version
    file = assets.files.get(rest if fixed else path)
    if file is None:
        raise NotFound(f"There is nothing at {PREFIX}/{path}.")
    headers = {"Cache-Control": CACHE_FOREVER if fixed else "no-cache", "ETag": f'"{assets.version}"'}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(file[0], media_type=file[1], headers=headers)


def _media_type(path: Path) -> str:
    # The machine's table of media types may be wrong, and browsers refuse wrong types because of nosniff.
    known = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
    return known.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
