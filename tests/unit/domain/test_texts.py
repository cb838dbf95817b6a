"""Text as every store takes it."""

from maestro.domain.texts import storable


def test_what_no_store_takes_is_taken_out() -> None:
    assert storable("a\0b\ud83dc\udcff \U0001f600") == "ab\ufffdc\ufffd \U0001f600"
