"""How a command is written: it has its own options, and ``Given`` for those that every command takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field
from typer.testing import CliRunner, Result

from maestro.cli.framework.commands import Commands, QueryOptions
from maestro.cli.framework.options import TEMPORAL_UI_PORT, WEBUI_PORT, Given


class Garnish(BaseModel):
    """Options that two commands share."""

    salt: int = Field(default=1, ge=0, description="how much")
    herbs: tuple[str, ...] = ()


GARNISH = QueryOptions(Garnish, spelling={"herbs": "--herb"})
Told = list[tuple[object, ...]]
Say = Callable[..., Result]


@pytest.fixture
def told() -> Told:
    """Return what the commands were given, in order."""
    return []


@pytest.fixture
def say(told: Told) -> Say:
    """Return a way to use two commands, with what stands before their names."""
    app = Commands("Cook.")

    @app.command()
    def soup(given: Given, dish: str, garnish: Annotated[Garnish, GARNISH], hot: bool = False) -> None:
        told.append((given, dish, garnish, hot))

    @app.command("tea", json=False, ports=[WEBUI_PORT, TEMPORAL_UI_PORT])
    def make_tea(given: Given) -> None:
        told.append((given,))

    def say(*words: str, before: Given | None = None) -> Result:
        return CliRunner().invoke(app, words, obj=before)

    return say


def test_a_command_has_its_own_options_and_those_of_a_query(say: Say, told: Told) -> None:
    say("soup", "leek", "--salt", "3", "--herb", "dill", "--herb", "mint", "--hot")
    say("soup", "pea")
    assert [own for _, *own in told] == [
        ["leek", Garnish(salt=3, herbs=("dill", "mint")), True],
        ["pea", Garnish(salt=1), False],
    ]


def test_the_common_options_are_given(say: Say, told: Told) -> None:
    say("soup", "leek", "--config", "a.json", "--data-dir", "there", "--debug", "--json")
    assert told[0][0] == Given(config=Path("a.json"), data_dir=Path("there"), debug=True, as_json=True)


def test_what_stands_nearer_to_the_end_of_the_line_wins(say: Say, told: Told) -> None:
    before = Given(config=Path("a.json"), data_dir=Path("there"), debug=True)
    say("soup", "leek", "--data-dir", "here", before=before)
    assert told[0][0] == Given(config=Path("a.json"), data_dir=Path("here"), debug=True)
    assert told[0][0] is before


def test_ports_are_given_by_the_keys_of_their_settings(say: Say, told: Told) -> None:
    say("tea", "--temporal-ui-port", "8001")
    assert told[0][0] == Given(ports={"webui.port": None, "temporal.uiPort": 8001})


@pytest.mark.parametrize("words", [("tea", "--json"), ("soup", "leek", "--port", "1"), ("tea", "--port", "65536")])
def test_what_a_command_does_not_take_is_wrong_usage(say: Say, told: Told, words: tuple[str, ...]) -> None:
    assert (say(*words).exit_code, told) == (2, [])


def test_the_help_shows_the_common_options_last(say: Say) -> None:
    options = [line.split()[0] for line in say("soup", "--help").output.splitlines() if line.startswith("  --")]
    assert options == ["--salt", "--herb", "--hot", "--json", "--config", "--data-dir", "--debug", "--help"]
