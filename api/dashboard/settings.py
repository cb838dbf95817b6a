"""The page of settings: values and origins, with a form for settings that apply without a restart."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel, JsonValue
from starlette.responses import Response

from api.dashboard.forms import submit, without_empty
from api.dashboard.pages import address, redirect_to_page, render
from api.guards import OPERATOR, Parts, PasswordRoute, request_parts
from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.settings.live import RUNTIME, SettingsPage, SettingView, parse_value, value_text

PAGE = "/settings"
PLATFORMS = re.compile(r"connectors\.\w+\.")
ORIGINS = ("default", "file", "environment", "command line", RUNTIME)
LIVE = "live"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)


class SettingsQuery(BaseModel):
    """The filter of settings, the key that is being edited, and the key that was just changed."""

    q: str = ""
    origin: str = ""
    changes: str = ""
    edit: str = ""
    changed: str = ""

    @property
    def filters(self) -> dict[str, str]:
        """The query parameters that filter settings, without empty ones."""
        return without_empty({"q": self.q, "origin": self.origin, "changes": self.changes})

    def matches(self, setting: SettingView) -> bool:
        """Tell whether a setting passes the filter; the setting that is being edited always passes."""
        texts = f"{setting.key} {setting.description} {setting.variable}".casefold()
        return setting.key == self.edit or (
            self.origin in ("", setting.origin)
            and self.changes in ("", setting.changes)
            and all(word in texts for word in self.q.casefold().split())
        )


class SettingForm(SettingsQuery):
    """The form that changes a setting; ``version`` is the version of the settings that the page showed."""

    key: str
    value: str = ""
    version: int | None = None


@router.get("")
def show_settings(request: Request, query: Annotated[SettingsQuery, Query()]) -> Response:
    """List the settings that pass the filter."""
    return _render_page(request, query)


@router.post("/change")
def change_setting(request: Request, parts: Parts, form: Annotated[SettingForm, Form()]) -> Response:
    """Change a setting and redirect to it; an error is shown beside the setting's field, with the entered text."""
    return _change_setting(request, form, lambda: _parse_value(parts.settings.page(), form))


@router.post("/reset")
def reset_setting(request: Request, form: Annotated[SettingForm, Form()]) -> Response:
    """Reset a setting that was changed while Maestro ran, and redirect to the setting."""
    return _change_setting(request, form, lambda: None)


def _change_setting(request: Request, form: SettingForm, value: Callable[[], JsonValue]) -> Response:
    settings = request_parts(request).settings
    return submit(
        lambda: settings.change({form.key: value()}, form.version, OPERATOR),
        lambda _: redirect_to_page(address(PAGE, {**form.filters, "changed": form.key}) + f"#{form.key}"),
        lambda error: _render_page(request, form.model_copy(update={"edit": form.key}), form, error),
    )


def _parse_value(page: SettingsPage, form: SettingForm) -> JsonValue:
    """Return the entered text as a JSON value, or as it is for a setting that the operation will refuse."""
    setting = next((setting for setting in page.items if setting.key == form.key), None)
    if setting is None:
        raise InvalidEdit("this setting does not exist; reload the page")
    return parse_value(setting, form.value) if setting.changes == LIVE else form.value


def _render_page(
    request: Request, query: SettingsQuery, refused: SettingForm | None = None, problem: MaestroError | None = None
) -> Response:
    page = request_parts(request).settings.page()
    listed = [setting for setting in page.items if query.matches(setting)]
    # Without a filter, the unchanged settings of a platform are hidden, and only their number is shown.
    hidden = {
        setting.key
        for setting in ([] if query.filters else listed)
        if PLATFORMS.match(setting.key) and setting.origin == "default" and setting.changes != LIVE
    }
    live = {setting.key: setting for setting in page.items if setting.changes == LIVE}
    return render(
        request,
        "settings.html",
        sections=_group_by_section([setting for setting in listed if setting.key not in hidden]),
        hidden_counts=Counter(key.rpartition(".")[0] for key in sorted(hidden)),
        total=len(page.items),
        page=page,
        query=query,
        refused=refused,
        problem=problem,
        beside_field=refused is not None and refused.key in live,
        changed=live.get(query.changed),
        origins=ORIGINS,
        value_text=value_text,
        runtime=RUNTIME,
        address=lambda edit="": address(PAGE, {**query.filters, **without_empty({"edit": edit})}),
    )


def _group_by_section(settings: Sequence[SettingView]) -> Sequence[tuple[str, Sequence[SettingView]]]:
    """Group settings by section; settings without a section come first, in the group ``general``."""

    def section(setting: SettingView) -> str:
        name, dot, _ = setting.key.partition(".")
        return name if dot else ""

    by_section = groupby(sorted(settings, key=section), key=section)
    return [(name or "general", list(members)) for name, members in by_section]
