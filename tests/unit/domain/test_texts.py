"""Text as every store takes it."""

from maestro.domain.texts import replace_unstorable, storable_text


def test_what_no_store_takes_is_taken_out() -> None:
    assert storable_text("a\0b\ud83dc\udcff \U0001f600") == "ab\ufffdc\ufffd \U0001f600"


def test_what_no_store_takes_is_replaced_and_nothing_moves() -> None:
    said = {"text": "a\0b\ud800c", "list": ["\udfff", 5, None], "more": {"x": "🎉"}}
    assert replace_unstorable(said) == {"text": "a\ufffdb\ufffdc", "list": ["\ufffd", 5, None], "more": {"x": "🎉"}}
