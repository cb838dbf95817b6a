"""``maestro agents token``: made, listed and revoked from a terminal."""

import pytest

from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro


def test_a_token_is_shown_once(rows: JobRows, maestro: Maestro) -> None:
    assert maestro("agents", "token", "list", "ada").out == "ada has no tokens.\n"
    token, hint = maestro("agents", "token", "new", "ada", "--name", "laptop").out.splitlines()
    assert token.startswith("mst_")
    assert "not shown again" in hint
    head, row = maestro("agents", "token", "list", "ada").out.splitlines()
    assert head.split() == ["NUMBER", "NAME", "ENDS", "IN", "MADE", "LAST", "USED", "REVOKED"]
    assert row.split()[:3] == ["1", "laptop", token[-4:]]
    assert token not in maestro("agents", "token", "list", "ada", "--json").out


def test_a_token_is_revoked_by_its_number(rows: JobRows, maestro: Maestro) -> None:
    made = maestro("agents", "token", "new", "ada", "--json").json
    assert set(made) == {*("id", "name", "ending", "createdBy", "createdAt", "lastUsedAt", "revokedAt", "token")}
    assert maestro("agents", "token", "revoke", "ada", str(made["id"])).out == "token 1 of ada is revoked\n"
    (token,) = maestro("agents", "token", "list", "ada", "--json").json["items"]
    assert token["revokedAt"]
    with rows.store.view() as tx:
        assert tx.agents.tokens.find_agent(made["token"]) is None


def test_a_long_list_goes_on_where_it_ended(rows: JobRows, maestro: Maestro) -> None:
    for _ in range(3):
        maestro("agents", "token", "new", "ada")
    page = maestro("agents", "token", "list", "ada", "--limit", "2", "--json").json
    rest = maestro("agents", "token", "list", "ada", "--cursor", page["next"], "--json").json
    assert [token["id"] for token in (*page["items"], *rest["items"])] == [3, 2, 1]
    assert rest["next"] is None
    assert "--cursor 2" in maestro("agents", "token", "list", "ada", "--limit", "2").out


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("new", "nobody"), 1, "nobody"),
        (("revoke", "ada", "9"), 1, "agent ada has no token 9"),
        (("revoke", "ada", "nine"), 2, "NUMBER"),
        (("new", "ada", "--name", " x"), 2, "a blank at either end"),
    ],
)
def test_what_does_not_fit_is_named(rows: JobRows, maestro: Maestro, words: list[str], code: int, reason: str) -> None:
    ran = maestro("agents", "token", *words)
    assert ran.code == code
    assert reason in ran.err
