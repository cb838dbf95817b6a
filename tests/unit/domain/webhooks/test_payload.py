"""What programs outside send, read."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maestro.domain.webhooks.template import FORM, InvalidJson, read_json, read_payload


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/cloudevents+json"]
)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"{'a': 1}", b'{"a": NaN}', b"\xff", b"[" * 200 + b"]" * 200, b"[" * 100_000, b"9" * 5000]
)
def test_what_is_called_json_must_be_json(kind: str, body: bytes) -> None:
    with pytest.raises(InvalidJson):
        read_payload(body, kind)


@pytest.mark.parametrize("kind", ["", "text/plain", FORM, "application/json"])
def test_an_object_is_json_whatever_the_header_says(kind: str) -> None:
    assert read_payload(b'{"a": [1]}', kind) == {"a": [1]}


def test_a_form_becomes_its_fields() -> None:
    assert read_payload(b"a=1&b=x+y&c=", FORM) == {"a": "1", "b": "x y", "c": ""}


def test_the_form_of_github_is_the_json_in_it() -> None:
    assert read_payload(b"payload=%7B%22action%22%3A%22opened%22%7D", FORM) == {"action": "opened"}


@pytest.mark.parametrize("body", [b"a&" * 5000, b"payload=no+json"])
def test_a_form_with_a_mistake_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        read_payload(body, FORM)


@pytest.mark.parametrize(("body", "text"), [(b"disk full", "disk full"), (b"12", "12"), (b"\xff", "\ufffd"), (b"", "")])
def test_anything_else_is_text(body: bytes, text: str) -> None:
    assert read_payload(body, "text/plain") == text


@settings(derandomize=True, deadline=None, database=None)
@given(st.binary(max_size=200), st.sampled_from(["", "application/json", FORM, "text/plain"]))
def test_any_body_is_read_or_refused(body: bytes, kind: str) -> None:
    with contextlib.suppress(InvalidJson):
        json.dumps(read_payload(body, kind))


def test_a_hundred_levels_are_taken() -> None:
    assert read_json(b"[" * 100 + b"]" * 100)
