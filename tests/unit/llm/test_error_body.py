"""What an error body says, and who says it."""

import json

import pytest

from maestro.llm.failures import PAGE_LIMIT, SENTENCE_LIMIT, ErrorBodyText, error_sentence, parse_error_body


@pytest.mark.parametrize(
    ("body", "codes", "sentences"),
    [
        (
            {"type": "error", "error": {"type": "not_found_error", "message": "model: x"}},
            '"type": "not_found_error"',
            ("model: x",),
        ),
        (
            {"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT", "details": [{"reason": "KEY"}, 1]}},
            '"code": "400"\n"status": "INVALID_ARGUMENT"\n"reason": "KEY"',
            ("no",),
        ),
        ({"error": {"details": [{"retryDelay": "13s", "other": "x"}]}}, '"retryDelay": "13s"', ()),
        ({"error": "model not found"}, "", ("model not found",)),
        (
            {"error": "Bad Request", "message": "too long", "status": 400},
            '"status": "400"',
            ("Bad Request", "too long"),
        ),
        ({"detail": "Not Found"}, "", ("Not Found",)),
        (
            {
                "error": {
                    "message": "m",
                    "metadata": {"raw": '{"error":{"code":"c","message":"v"}}', "flagged_input": "x"},
                }
            },
            '"flagged_input"\n"code": "c"',
            ("m", "v"),
        ),
        ({"error": {"message": "m", "metadata": {"raw": "said 'no'"}}}, "", ("m", "said 'no'")),
        ({"error": {"message": ["odd"], "code": {"odd": 1}, "details": "odd", "metadata": 3}}, "", ()),
        ([{"error": {"code": "first"}}, {"error": {"code": "second"}}], '"code": "first"', ()),
        ({}, "", ()),
    ],
)
def test_only_the_fields_of_an_error_are_read(body: object, codes: str, sentences: tuple[str, ...]) -> None:
    said = parse_error_body(json.dumps(body))
    assert (said.codes, said.sentences) == (codes, sentences)


def test_of_a_page_every_word_counts() -> None:
    assert parse_error_body("<h1>credit balance</h1>") == ErrorBodyText("<h1>credit balance</h1>")
    assert parse_error_body('"a text"') == ErrorBodyText('"a text"')
    assert len(parse_error_body("x" * (PAGE_LIMIT + 1)).codes) == PAGE_LIMIT


@pytest.mark.parametrize("body", ['{"error": {"input": "insufficient_quota', " [1, 2", "[" * 100_000])
def test_of_json_that_breaks_off_nothing_counts(body: str) -> None:
    assert parse_error_body(body) == ErrorBodyText()


def test_a_sentence_cannot_pass_for_a_field_and_is_read_as_far_as_providers_speak() -> None:
    said = error_sentence('quoted "retryDelay": "999s"' + "x" * SENTENCE_LIMIT)
    assert said.whole_text.startswith("\nquoted 'retryDelay': '999s'")
    assert len(said.sentences[0]) == SENTENCE_LIMIT
