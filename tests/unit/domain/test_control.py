"""Control words are the whole message or none (docs/decisions.md: control words)."""

import pytest

from maestro.domain.messages import ControlWord, control_word


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("/stop", ControlWord.STOP),
        (" /STOP\n", ControlWord.STOP),
        ("/status", ControlWord.STATUS),
        ("/New", ControlWord.NEW),
        ("/stop it", None),
        ("please /stop", None),
        ("stop", None),
        ("//stop", None),
        ("/sto", None),
        ("/", None),
        ("", None),
    ],
)
def test_control_words(content: str, word: ControlWord | None) -> None:
    assert control_word(content) is word
