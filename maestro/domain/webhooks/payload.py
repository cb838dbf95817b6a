"""Reads what a program outside sent: JSON, a form, or plain text."""

import json
from collections.abc import Iterator, Mapping
from typing import NoReturn
from urllib.parse import parse_qsl

FORM = "application/x-www-form-urlencoded"
DEEPEST = 100
"""Levels of lists and objects in each other; more than that nobody sends who means well."""
MOST_FIELDS = 1000


class NoJson(ValueError):
    """Something is no JSON that we take; the message says what, and quotes nothing."""


def read_payload(body: bytes, content_type: str) -> object:
    """Return what a body says.

    What is called JSON must be JSON; raises ``NoJson``. Where something else is said, or nothing, an object or a list
    is JSON all the same, because programs often leave their habit in that header. A form becomes its fields; its field
    ``payload`` alone is read as JSON, as GitHub sends it. Anything else is text.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return read_json(body)
    try:
        found = read_json(body)
    except NoJson:
        return _form(body) if kind == FORM else body.decode("utf-8", "replace")
    return found if isinstance(found, list | dict) else body.decode("utf-8", "replace")


def read_json(body: bytes | str) -> object:
    """Return what JSON says; raises ``NoJson``, also for what Python takes for JSON though it is none."""
    try:
        found = json.loads(body, parse_constant=_refuse)
    except RecursionError:
        raise NoJson(f"the JSON has more than {DEEPEST} levels") from None
    except ValueError:
        raise NoJson("the body is not valid JSON") from None
    if _depth(found) > DEEPEST:
        raise NoJson(f"the JSON has more than {DEEPEST} levels")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _form(body: bytes) -> object:
    try:
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise NoJson(f"the form has more than {MOST_FIELDS} fields") from None
    return read_json(fields["payload"]) if set(fields) == {"payload"} else fields


def _depth(value: object) -> int:
    """Return how many levels there are; without recursion, which has its own limit."""
    depth, level = 0, [value]
    while level := [below for one in level for below in _below(one)]:
        depth += 1
    return depth


def _below(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
