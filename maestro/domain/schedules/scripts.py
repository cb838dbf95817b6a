"""Heartbeat scripts: fetch JSON, fill a template with it, and call a model only if a condition holds."""

import operator
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Self, TypeGuard
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError, model_validator

from maestro.domain.errors import InvalidEdit, MaestroError
from maestro.domain.fields import matching
from maestro.domain.values import View
from maestro.domain.webhooks.template import (
    NOTHING,
    InvalidJson,
    as_text,
    checked_prompt,
    checked_template,
    cite_source,
    fill_template,
    read_json,
    value_at,
)

Path = Annotated[str, matching(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", "names with dots between, such as data.price")]


class ScriptFailed(MaestroError):
    """The fetched response is not usable and a retry would not help; the message is for operators."""

    public = "The data that a script fetched is not usable."


class ScriptSourceAway(ScriptFailed):
    """The server of a script's address answered with a temporary error; a retry may help."""

    public = "The server that a script asks is not available."
    retryable = True


class Comparison(StrEnum):
    """A comparison operator of a condition."""

    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    EQUAL = "=="
    OTHER = "!="


_ORDERS = {
    Comparison.LESS: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.MORE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
}


class Condition(View):
    """A comparison of the value at ``path`` of the fetched JSON; if it holds, the model gets the filled ``prompt``."""

    path: Path
    op: Comparison
    value: bool | float | str
    prompt: Annotated[str, Field(max_length=20_000), AfterValidator(checked_prompt)]

    def holds(self, fetched: object) -> bool:
        """Say whether the condition holds; a missing value, or a non-number in an ordered comparison, never does."""
        value = value_at(fetched, self.path)
        is_equal = value == self.value and isinstance(value, bool) == isinstance(self.value, bool)
        if self.op is Comparison.EQUAL:
            return is_equal
        if self.op is Comparison.OTHER:
            return value is not NOTHING and not is_equal
        return _is_number(value) and _is_number(self.value) and _ORDERS[self.op](value, self.value)


class Script(View):
    """The work of a heartbeat without a model: fetch JSON from a public address, fill ``template`` and post the result.

    Placeholders are as in webhook templates, without ``payload.``: ``{{data.price}}``. ``bearer`` is a reference
    (``env:NAME`` or ``file:PATH``) to a token that is sent to this address only. Without a template only the condition
    is evaluated.
    """

    url: Annotated[str, matching(r"https?://\S{1,2000}", "an address that begins with https:// or http://")]
    bearer: Annotated[str, matching(r"(|(env|file):\S{1,500})", "env:NAME or file:PATH, or nothing")] = ""
    template: Annotated[str, Field(max_length=20_000), AfterValidator(checked_template)] = ""
    condition: Condition | None = None

    @model_validator(mode="after")
    def _check_has_effect(self) -> Self:
        if not self.template.strip() and self.condition is None:
            raise ValueError("a script needs a template to post, or a condition")
        return self


def read_script(text: str) -> Script:
    """Parse a script stored in a row; raises ``InvalidEdit`` if it is not valid."""
    try:
        return Script.model_validate_json(text)
    except ValidationError as error:
        raise InvalidEdit(f"the script cannot be read: {error.errors()[0]['msg']}") from None


def read_response(status: int, body: bytes) -> object:
    """Return the JSON of a response; raises ``ScriptFailed`` for an error status or invalid JSON."""
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        is_temporary = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
        raise (ScriptSourceAway if is_temporary else ScriptFailed)(f"the server answered with status {status}")
    try:
        return read_json(body)
    except InvalidJson as error:
        raise ScriptFailed(f"the server's answer is not usable: {error}") from None


def fill_script_template(template: str, fetched: object) -> str:
    """Return the template filled with the fetched values; numbers get thousands separators."""
    return fill_template(template, fetched, _to_text).text.strip()


def condition_text(script: Script, condition: Condition, fetched: object) -> str:
    """Return the model's prompt for a condition that holds; never empty, because an empty task runs the script."""
    host = urlsplit(script.url).hostname
    return cite_source(condition.prompt, fill_template(condition.prompt, fetched, _to_text), f"{host} answered")


def _to_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4f}"
    return f"{value:,}" if _is_number(value) else as_text(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
