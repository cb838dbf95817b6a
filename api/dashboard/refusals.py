"""The page that says why what somebody asked for cannot be shown, instead of an error for programs."""

from fastapi import Request
from starlette.responses import HTMLResponse

from api.dashboard.pages import render
from api.errors import status_of
from maestro.domain.errors import MaestroError


def refused(request: Request, here: str, error: MaestroError) -> HTMLResponse:
    """Say it, among the pages; ``here`` is the page of the rail that it belongs to."""
    return render(request, "refused.html", status_of(error), title="Not here – Maestro", here=here, problem=str(error))
