"""The forms for connectors, our accounts on platforms, and for channels that a platform closed."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from api.dashboard.accounts_sheet import PAGE, Shown, TypedConnector, done
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.bots.views import ConnectorChange, NewConnector
from maestro.domain.errors import InvalidEdit
from maestro.domain.reading import read

SECRET = "secret_"  # noqa: S105 - how the fields of secrets begin

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=f"{PAGE}/connectors")

Word = Annotated[str, Form()]
Typed = Annotated[TypedConnector, Form()]


@router.post("/add")
def add(request: Request, parts: Parts, typed: Typed) -> Response:
    """Add a connector, which is connected at once, and lead back to the list."""

    def wish() -> None:
        where = {"platform": typed.platform, "account": typed.account.strip(), "agent": typed.agent}
        new = {**where, "secrets": _secrets(typed), "options": _options(typed)}
        parts.connectors.add(read(NewConnector, new), OPERATOR)

    return done(request, Shown("connector", connector=_without_secrets(typed)), "connecting", wish)


@router.post("/change")
def change(request: Request, parts: Parts, typed: Typed) -> Response:
    """Change a connector, and lead back to the list; a secret that is left empty stays."""

    def wish() -> None:
        before = parts.connectors.show(typed.platform, typed.account).options
        options = dict.fromkeys(before) | _options(typed)
        wanted = {"agent": typed.agent, "secrets": _secrets(typed), "options": options}
        parts.connectors.change(typed.platform, typed.account, read(ConnectorChange, wanted), OPERATOR)

    shown = Shown("connector", editing=True, connector=_without_secrets(typed))
    return done(request, shown, "changed", wish)


@router.post("/enable")
def enable(request: Request, parts: Parts, platform: Word, account: Word) -> Response:
    """Connect a connector again."""
    return _switch(request, parts, (platform, account), enabled=True)


@router.post("/disable")
def disable(request: Request, parts: Parts, platform: Word, account: Word) -> Response:
    """Let a connector rest: nothing comes in and nothing goes out there."""
    return _switch(request, parts, (platform, account), enabled=False)


@router.post("/remove")
def remove(request: Request, parts: Parts, platform: Word, account: Word) -> Response:
    """Remove a connector with its secrets."""
    return done(request, Shown(), "removed", lambda: parts.connectors.remove(platform, account, OPERATOR))


@router.post("/open-channel")
def open_channel(request: Request, parts: Parts, platform: Word, account: Word, channel: Word) -> Response:
    """Send to a channel again that its platform had closed."""
    return done(
        request, Shown(), "opened", lambda: parts.connectors.enable_channel(platform, account, channel, OPERATOR)
    )


def _switch(request: Request, parts: Parts, which: tuple[str, str], *, enabled: bool) -> Response:
    change = ConnectorChange(enabled=enabled)
    word = "enabled" if enabled else "disabled"
    return done(request, Shown(), word, lambda: parts.connectors.change(*which, change, OPERATOR))


def _secrets(typed: TypedConnector) -> Mapping[str, str]:
    """Return the secrets that were typed."""
    given = {name.removeprefix(SECRET): str(text) for name, text in _extra(typed).items() if name.startswith(SECRET)}
    return {name: text.strip() for name, text in given.items() if text.strip()}


def _options(typed: TypedConnector) -> dict[str, Any]:
    """Return the options that were typed; raises ``InvalidEdit`` for what is no JSON object."""
    try:
        found = json.loads(typed.options.strip() or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidEdit('options: expected a JSON object, such as {"requireMention": false}')
    return found


def _extra(typed: TypedConnector) -> Mapping[str, object]:
    return typed.model_extra or {}


def _without_secrets(typed: TypedConnector) -> TypedConnector:
    """Return what may stand in the page that says what is wrong."""
    return TypedConnector(**typed.model_dump(include=set(TypedConnector.model_fields)))
