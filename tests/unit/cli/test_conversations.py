"""``maestro conversations``: what an operator reads, finds and deletes from a terminal."""

import pytest

from tests.support.job_rows import JobRows
from tests.unit.api.test_conversations import talk
from tests.unit.cli.conftest import Maestro


def test_the_list_is_a_table(rows: JobRows, maestro: Maestro) -> None:
    assert maestro("conversations", "list").out == "No conversations match.\n"
    number = talk(rows, "hello")
    head, line = maestro("conversations", "list").out.splitlines()
    assert head.split() == ["ID", "STATUS", "AGENT", "CHANNEL", "WITH", "MESSAGES", "TOKENS", "LAST", "SAID"]
    assert line.split()[:7] == [str(number), "active", "ada", "web/general", "Grace", "2", "10"]
    assert maestro("conversations", "list", "--q", "nothing of it", "--json").json == {"items": [], "next": None}


def test_a_long_list_goes_on_where_it_ended(rows: JobRows, maestro: Maestro) -> None:
    numbers = [talk(rows, "hello", channel=f"channel-{number}") for number in range(3)]
    page = maestro("conversations", "list", "--limit", "2", "--json").json
    rest = maestro("conversations", "list", "--cursor", page["next"], "--json").json
    assert [one["id"] for one in (*page["items"], *rest["items"])] == numbers[::-1]
    wrong = maestro("conversations", "list", "--cursor", "nonsense")
    assert (wrong.code, "not a cursor" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    "command", [("conversations", "list", "--q"), ("conversations", "search"), ("jobs", "list", "--q")]
)
def test_what_no_database_looks_for_is_refused(rows: JobRows, maestro: Maestro, command: tuple[str, ...]) -> None:
    talk(rows, "hello")
    refused = maestro(*command, "x" * 60_000)
    assert (refused.code, "at most 1000 characters" in refused.err) == (2, True)


def test_a_conversation_is_read(rows: JobRows, maestro: Maestro) -> None:
    number = talk(rows, "one\x1b[2J line\nand another")
    shown = maestro("conversations", "show", str(number)).out
    assert shown.startswith(f"Conversation {number}  active\n")
    assert "  Grace\n    one [2J line\n    and another\n" in shown
    assert maestro("conversations", "show", str(number), "--json").json["messages"]["items"][1]["author"] == "ada"
    gone = maestro("conversations", "show", "99")
    assert (gone.code, gone.err) == (1, "maestro: conversation 99 does not exist\n")


def test_what_was_said_is_found(rows: JobRows, maestro: Maestro) -> None:
    number = talk(rows, "the pelican")
    assert maestro("conversations", "search", "heron").out == "No message contains this text.\n"
    _, *lines = maestro("conversations", "search", "Pelican").out.splitlines()
    assert [line.split()[0] for line in lines] == [str(number)] * 2


def test_deleting_asks_first(rows: JobRows, maestro: Maestro) -> None:
    number = talk(rows, "hello")
    assert maestro("conversations", "delete", str(number)).code != 0, "nobody said yes"
    assert maestro("conversations", "delete", str(number), "--yes").out == f"Conversation {number} is deleted.\n"
    again = maestro("conversations", "delete", str(number), "--yes")
    assert (again.code, "was deleted by operator" in again.err) == (1, True)


def test_one_is_ended_once(rows: JobRows, maestro: Maestro) -> None:
    number = talk(rows, "hello")
    assert maestro("conversations", "close", str(number)).out == f"Conversation {number} has ended.\n"
    again = maestro("conversations", "close", str(number))
    assert (again.code, f"conversation {number} has ended already" in again.err) == (1, True)
    assert talk(rows, "and now") != number
