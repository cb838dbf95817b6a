"""What people are shown of an answer once its tags are acted on."""

import pytest

from maestro.domain.conducting.conductor import NOTED, answer_text
from maestro.domain.jobs.delegations import DelegatedTask

ASKED, GIVEN = DelegatedTask("bob", "count", hears=True), DelegatedTask("cleo", "sing", hears=False)


@pytest.mark.parametrize(
    ("visible", "told", "tasks", "text"),
    [
        ("Hello.", [], [], "Hello."),
        ("Hello.", ["Created @x.", "Not @y."], [], "Hello.\n\nCreated @x.\nNot @y."),
        ("Hello.", [], [ASKED, GIVEN], "Hello."),
        ("", [], [ASKED], "I am asking @bob."),
        ("", [], [GIVEN], "I passed this on to @cleo."),
        ("", [], [GIVEN, ASKED], "I am asking @bob. I passed this on to @cleo."),
        ("", ["Created @x."], [], "Created @x."),
        ("", ["Not @y."], [ASKED], "I am asking @bob.\n\nNot @y."),
        ("", [], [], NOTED),
    ],
)
def test_an_answer_always_says_something(visible: str, told: list[str], tasks: list[DelegatedTask], text: str) -> None:
    assert answer_text(visible, told, tasks) == text
