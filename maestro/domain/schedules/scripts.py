"""Heartbeats without a model: what is fetched is filled into a text, and may be a reason to ask a model after all."""

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
    fill_template,
    read_json,
    value_at,
    with_source,
)

Path = Annotated[str, matching(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", "names with dots between, such as data.price")]


class ScriptFailed(MaestroError):
    """What was fetched is no use, and would be none a moment later; the text is for operators."""

    public = "What a script fetched was of no use."


class ScriptSourceAway(ScriptFailed):
    """The server that is asked has trouble of its own."""

    public = "What a script fetches was not to be had."
    retryable = True


class Comparison(StrEnum):
    """How a value is compared."""

    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    EQUAL = "=="
    OTHER = "!="


class Condition(View):
    """When a model is asked: the value at ``path`` of what was fetched, compared; ``prompt`` is what it is told.

    The prompt may have the same placeholders as the template.
    """

    path: Path
    op: Comparison
    value: bool | float | str
    prompt: Annotated[str, Field(max_length=20_000), AfterValidator(checked_prompt)]

    def holds(self, fetched: object) -> bool:
        """Say whether it is so; what is not there, or is no number where one is compared, fulfils no condition."""
        found = value_at(fetched, self.path)
        same = found == self.value and isinstance(found, bool) == isinstance(self.value, bool)
        if self.op is Comparison.EQUAL:
            return same
        if self.op is Comparison.OTHER:
            return found is not NOTHING and not same
        return _is_number(found) and _is_number(self.value) and _ordered(found, self.op, self.value)


class Script(View):
    """What a heartbeat does without a model: get JSON from a public address, fill it into ``template``, post that.

    Placeholders are as in webhooks, without ``payload.``: ``{{data.price}}``. ``bearer`` is a reference, ``env:NAME``
    or ``file:PATH``, to a token that is shown to that address alone. Without a template only the condition counts.
    """

    url: Annotated[str, matching(r"https?://\S{1,2000}", "an address that begins with https:// or http://")]
    bearer: Annotated[str, matching(r"(|(env|file):\S{1,500})", "env:NAME or file:PATH, or nothing")] = ""
    template: Annotated[str, Field(max_length=20_000), AfterValidator(checked_template)] = ""
    condition: Condition | None = None

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not self.template.strip() and self.condition is None:
            raise ValueError("a script needs a template to post, or a condition")
        return self


def read_script(text: str) -> Script:
    """Return a script that a row has; raises ``InvalidEdit`` for one that was written past us."""
    try:
        return Script.model_validate_json(text)
    except ValidationError as error:
        raise InvalidEdit(f"the script cannot be read: {error.errors()[0]['msg']}") from None


def fetched_json(status: int, body: bytes) -> object:
    """Return what an address answered; raises ``ScriptFailed`` for an error and for what is no JSON."""
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        away = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
        raise (ScriptSourceAway if away else ScriptFailed)(f"the server answered with status {status}")
    try:
        return read_json(body)
    except InvalidJson as error:
        raise ScriptFailed(f"what it answered is of no use: {error}") from None


def fill_script(template: str, fetched: object) -> str:
    """Return a template with what was fetched in it; numbers are written as people read them."""
    return fill_template(template, fetched, _readable).text.strip()


def condition_text(script: Script, condition: Condition, fetched: object) -> str:
    """Return what a model is told when a condition holds; never nothing, for a job without a task runs the script."""
    host = urlsplit(script.url).hostname
    return with_source(condition.prompt, fill_template(condition.prompt, fetched, _readable), f"{host} answered")


def _readable(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4f}"
    return f"{value:,}" if _is_number(value) else as_text(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ordered(found: float, op: Comparison, wanted: float) -> bool:
    match op:
        case Comparison.LESS:
            return found < wanted
        case Comparison.AT_MOST:
            return found <= wanted
        case Comparison.MORE:
            return found > wanted
        case _:
            return found >= wanted
