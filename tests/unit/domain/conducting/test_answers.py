"""What people are shown of an answer once its tags are acted on."""

import pytest

from maestro.domain.conducting.answers import NOTED, shown
from maestro.domain.jobs.delegations import Handover

ASKED, GIVEN = Handover("bob", "count", hears=True), Handover("cleo", "sing", hears=False)


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
def test_an_answer_always_says_something(visible: str, told: list[str], tasks: list[Handover], text: str) -> None:
    assert shown(visible, told, tasks) == text
