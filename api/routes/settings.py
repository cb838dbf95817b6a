"""The settings, and those of them that are changed while Maestro runs."""

import re
from typing import Annotated

from fastapi import APIRouter, Body, Header, Response
from pydantic import JsonValue

from api.errors import InvalidRequest
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.live import SettingsPage

VERSION = "version"

router = APIRouter(route_class=PasswordRoute, tags=["settings"], prefix="/api/settings")

Wishes = Annotated[
    dict[str, JsonValue],
    Body(
        examples=[{"chat.limits.maxMessageChars": 8192}],
        description="values by key, null to take back what was set; `version`, if it is there, is the one that was "
        "read, and 409 is answered when it is no longer the newest",
    ),
]


@router.get("")
def show_settings(parts: Parts, response: Response) -> SettingsPage:
    """List every key: its value, where that comes from, and whether it can be set while Maestro runs."""
    return _tagged(parts.settings.page(), response)


@router.patch("")
def change_settings(
    parts: Parts, response: Response, wishes: Wishes, if_match: Annotated[str | None, Header()] = None
) -> SettingsPage:
    """Set keys while Maestro runs, all or none; every process works by them within a second.

    400 for a value that cannot be, 409 for a key that needs a restart.
    """
    values = {key: value for key, value in wishes.items() if key != VERSION}
    version = _version(wishes.get(VERSION) if VERSION in wishes else if_match)
    return _tagged(parts.settings.change(values, version, OPERATOR), response)


def _version(given: JsonValue) -> int | None:
    """Return the version that was read, None where nobody says; raises ``InvalidRequest``."""
    if given is None or given == "*":
        return None
    number = re.fullmatch(r'(?:W/)?"?(\d{1,18})"?', str(given)) if not isinstance(given, bool) else None
    if number is None:
        raise InvalidRequest("version: expected the number that GET /api/settings told")
    return int(number[1])


def _tagged(page: SettingsPage, response: Response) -> SettingsPage:
    response.headers["ETag"] = f'"{page.version}"'
    return page
