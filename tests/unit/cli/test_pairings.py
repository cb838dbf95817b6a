"""``maestro pairings`` and ``maestro people``: who is let in, from a terminal (docs/decisions.md: access)."""

from maestro.store.store import utc_now
from tests.support.job_rows import JobRows
from tests.support.wishes import LIFETIME, wish
from tests.unit.cli.conftest import Maestro


def test_people_are_let_in_listed_and_forgotten(rows: JobRows, maestro: Maestro) -> None:
    assert maestro("pairings", "list").out == "No user asks for access.\n"
    assert maestro("people", "list").out.startswith("No user has access by a pairing yet;")
    rows.clock.now = utc_now()
    wish(rows, "ada", "ABCDEFGH")
    head, row = maestro("pairings", "list").out.splitlines()
    assert head.split() == ["ID", "CODE", "PERSON", "NAME", "STATUS", "UNTIL", "BY"]
    assert row.split()[:5] == ["1", "ABCDEFGH", "slack:ada", "Ada", "pending"]
    assert maestro("pairings", "approve", "abcd-efgh", "--owner").out == "slack:ada has access, and is an owner\n"
    assert maestro("people", "list").out.splitlines()[1].split()[:2] == ["slack:ada", "Ada"]
    assert maestro("owner", "list").out.splitlines()[1].startswith("slack:ada")
    assert maestro("people", "remove", "slack:ada").out == "slack:ada has no access any more\n"
    gone = maestro("people", "remove", "slack:ada")
    assert (gone.code, gone.err.count("\n")) == (1, 1)


def test_who_is_refused_and_a_code_that_ran_out(rows: JobRows, maestro: Maestro) -> None:
    rows.clock.now = utc_now()
    wish(rows, "ada", "ABCDEFGH")
    assert maestro("pairings", "refuse", "1").out == "slack:ada has no access\n"
    rows.clock.now = utc_now() - LIFETIME
    wish(rows, "bob", "BCDEFGHJ")
    ran = maestro("pairings", "approve", "BCDEFGHJ")
    assert (ran.code, "has expired" in ran.err) == (1, True)
    statuses = [one["status"] for one in maestro("pairings", "list", "--json").json["items"]]
    assert statuses == ["expired", "refused"]


def test_an_invitation_is_a_line_to_send(maestro: Maestro) -> None:
    line, meaning = maestro("pairings", "invite").out.splitlines()
    assert line.startswith("/pair ")
    assert "gets access" in meaning
    made = maestro("pairings", "invite", "--owner", "--json").json
    assert (len(made["code"]), made["owner"]) == (8, True)
