"""The page of settings: what holds and where it comes from; those that count at once are changed here."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel, JsonValue
from starlette.responses import Response

from api.dashboard.forms import submit
from api.dashboard.pages import lead_back, render
from api.guards import OPERATOR, PasswordRoute
from api.routes.dependencies import Parts, parts_of
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.settings.live import RUNTIME, SettingsPage, SettingView, parse_value, value_text

PAGE = "/settings"
TITLE = "Settings – Maestro"
PLATFORMS = re.compile(r"connectors\.\w+\.")
ORIGINS = ("default", "file", "environment", "command line", RUNTIME)
LIVE = "live"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class SettingsQuery(BaseModel):
    """A filter of settings, with the key whose field is open and the key that was just changed."""

    q: str = ""
    origin: str = ""
    changes: str = ""
    edit: str = ""
    changed: str = ""

    @property
    def everything(self) -> bool:
        """Say whether nothing in particular was asked for."""
        return not (self.q or self.origin or self.changes)

    def admits(self, one: SettingView) -> bool:
        """Say whether a setting is among them."""
        texts = f"{one.key} {one.description} {one.variable}".casefold()
        same = (not self.origin or one.origin == self.origin) and (not self.changes or one.changes == self.changes)
        return one.key == self.edit or (same and all(word in texts for word in self.q.casefold().split()))


class SettingForm(SettingsQuery):
    """A form that changes a key: ``version`` is that of the settings as they were read."""

    key: str
    value: str = ""
    version: int | None = None


@dataclass(frozen=True)
class _Outcome:
    """The result of a change: its key, the text of the form and the refusal."""

    key: str = ""
    value: str = ""
    problem: MaestroError | None = None


_NONE = _Outcome()


@router.get("")
def show(request: Request, wanted: Annotated[SettingsQuery, Query()]) -> Response:
    """List the settings."""
    return _page(request, wanted)


@router.post("/change")
def change(request: Request, parts: Parts, typed: Annotated[SettingForm, Form()]) -> Response:
    """Set a key, and lead back to it; what cannot be is said beside its field, with what was typed."""
    return _set(request, typed, lambda: _value(parts.settings.page(), typed))


@router.post("/reset")
def reset(request: Request, typed: Annotated[SettingForm, Form()]) -> Response:
    """Take back what was set while Maestro runs, and lead back to the key."""
    return _set(request, typed, lambda: None)


def _set(request: Request, typed: SettingForm, value: Callable[[], JsonValue]) -> Response:
    settings = parts_of(request).settings
    return submit(
        lambda: settings.change({typed.key: value()}, typed.version, OPERATOR),
        lambda _: _to_key(typed),
        lambda error: _refused(request, typed, error),
    )


def _to_key(typed: SettingForm) -> Response:
    led = lead_back(PAGE, q=typed.q, origin=typed.origin, changes=typed.changes, changed=typed.key)
    led.headers["location"] += f"#{typed.key}"
    return led


def _refused(request: Request, typed: SettingForm, error: MaestroError) -> Response:
    wanted = typed.model_copy(update={"edit": typed.key})
    return _page(request, wanted, _Outcome(typed.key, typed.value, error))


def _value(page: SettingsPage, typed: SettingForm) -> JsonValue:
    """Return the text of the form as a value; the operation refuses keys that need a restart."""
    found = next((one for one in page.items if one.key == typed.key), None)
    if found is None:
        raise InvalidEdit("there is no such setting; reload the page")
    return parse_value(found, typed.value) if found.changes == LIVE else typed.value


def _page(request: Request, wanted: SettingsQuery, outcome: _Outcome = _NONE) -> Response:
    page = parts_of(request).settings.page()
    shown = [one for one in page.items if wanted.admits(one)]
    live = {one.key: one for one in page.items if one.changes == LIVE}
    return render(
        request,
        "settings.html",
        title=TITLE,
        sections=_sections([one for one in shown if not (wanted.everything and _is_apart(one))]),
        apart=_apart(shown) if wanted.everything else {},
        every=len(page.items),
        page=page,
        wanted=wanted,
        outcome=outcome,
        problem=outcome.problem,
        beside=outcome.key in live,
        changed=live.get(wanted.changed),
        origins=ORIGINS,
        written=value_text,
        runtime=RUNTIME,
        address=partial(_address, wanted),
    )


def _address(wanted: SettingsQuery, edit: str = "") -> str:
    """Return where the same settings are shown with another field open; a form that was not taken has no such place."""
    asked = {"q": wanted.q, "origin": wanted.origin, "changes": wanted.changes, "edit": edit}
    given = {name: text for name, text in asked.items() if text}
    return PAGE + (f"?{urlencode(given)}" if given else "")


def _is_apart(one: SettingView) -> bool:
    """Say whether a setting is shown with those of its platform alone: it only has its default, and needs a restart."""
    return bool(PLATFORMS.match(one.key)) and one.origin == "default" and one.changes != LIVE


def _apart(shown: Sequence[SettingView]) -> Mapping[str, int]:
    """Return how many settings are shown apart, by the beginning of their keys."""
    return Counter(one.key.rpartition(".")[0] for one in shown if _is_apart(one))


def _sections(shown: Sequence[SettingView]) -> Sequence[tuple[str, Sequence[SettingView]]]:
    """Put together the settings of one section; a key that stands by itself is of the first one, ``general``."""

    def section(one: SettingView) -> str:
        name, dot, _ = one.key.partition(".")
        return name if dot else ""

    by_section = groupby(sorted(shown, key=section), key=section)
    return [(name or "general", list(members)) for name, members in by_section]
