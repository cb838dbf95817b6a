"""Placeholders in a template, and what programs outside put into them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maestro.domain.webhooks.template import LONGEST, MISSING, MOST_PLACEHOLDERS, checked_template, fill_template

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
TEMPLATE = st.text(alphabet=st.sampled_from("{}. payload0ab\n\0\ud800"), max_size=300)
PAYLOAD = {"payload": {"a": {"b": "deep"}, "items": [{"name": "first"}, "second"], "n": 1.5, "no": None, "yes": True}}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("build {{payload.a.b}} failed", "build deep failed"),
        ("{{ payload.items.0.name }}, {{payload.items.1}}", "first, second"),
        ("{{payload.n}} {{payload.no}} {{payload.yes}}", "1.5 null true"),
        ("{{payload.a}}", '{"b":"deep"}'),
        ("{{{payload.a.b}}}", "{deep}"),
        ("no placeholders, { } and }}", "no placeholders, { } and }}"),
        ("{{not a path}} {{}}", "{{not a path}} {{}}"),
    ],
)
def test_values_take_the_place_of_their_paths(template: str, text: str) -> None:
    assert fill_template(template, PAYLOAD).text == text
    assert fill_template(template, PAYLOAD).missing == ()


def test_the_whole_payload_is_compact_json() -> None:
    assert json.loads(fill_template("{{payload}}", PAYLOAD).text) == PAYLOAD["payload"]


@pytest.mark.parametrize(
    "path", ["payload.b", "payload.items.2", "payload.items.-1", "payload.items.x", "payload.n.0", "payload.a.b.0"]
)
def test_what_is_not_there_is_marked_and_named(path: str) -> None:
    filled = fill_template(f"a {{{{{path}}}}} b", PAYLOAD)
    assert (filled.text, filled.missing) == (f"a {MISSING} b", (path,))


def test_a_placeholder_that_somebody_sent_is_not_filled() -> None:
    values = {"payload": {"title": "{{payload.secret}}", "secret": "s3cret"}}
    assert fill_template("{{payload.title}}", values).text == "{{payload.secret}}"


def test_numbers_are_written_as_the_caller_wants() -> None:
    assert fill_template("{{price}}", {"price": 1234.5}, lambda value: f"{value:,.2f}").text == "1,234.50"


def test_of_a_long_text_the_middle_is_left_out() -> None:
    filled = fill_template("<{{payload}}>", {"payload": "a" * 30_000 + "z" * 30_000})
    assert len(filled.text) <= LONGEST
    assert filled.text.startswith("<aaa")
    assert filled.text.endswith("zzz>")
    assert "the middle is left out" in filled.text


@settings(derandomize=True, deadline=None, database=None)
@given(TEMPLATE, JSON)
def test_any_template_can_be_filled_with_anything(template: str, values: object) -> None:
    text = fill_template(template, {"payload": values}).text
    assert len(text) <= LONGEST
    text.encode()
    assert "\0" not in text


@settings(derandomize=True, deadline=None, database=None)
@given(
    st.lists(st.sampled_from(["{{payload}}", "{{ payload.a }}", "{{payload.0.b-c}}", " text } "]), max_size=20), JSON
)
def test_of_a_checked_template_no_placeholder_is_left(pieces: list[str], values: object) -> None:
    template = checked_template("".join(pieces), "payload")
    marked = fill_template(template, {"payload": values}, lambda _: "-")
    assert "{{" not in marked.text


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{payload", "there must be the path"),
        ("{{payload} }", "there must be the path"),
        ("{{}}", "is not the path"),
        ("{{payload..a}}", "is not the path"),
        ("{{#if payload}}", "is not the path"),
        ("{{user.name}}", "does not begin with payload"),
        ("{{payloads}}", "does not begin with payload"),
        ("{{payload}}" * (MOST_PLACEHOLDERS + 1), "are allowed"),
    ],
)
def test_a_template_with_a_mistake_is_refused(template: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        checked_template(template, "payload")


def test_without_a_root_every_path_will_do() -> None:
    assert checked_template("{{user.name}}") == "{{user.name}}"
