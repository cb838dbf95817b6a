"""Tokens of agents outside: what is kept of them opens nothing, and what is revoked neither."""

import base64
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.agents.agent import BEARER_PREFIX, MOST_TOKENS, AgentStatus, IssuedToken
from maestro.domain.agents.edits import AgentChange
from maestro.domain.errors import Conflict, NotFound
from tests.support.database import dump
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent

OPERATOR = "operator"


@pytest.fixture
def rows(tmp_path: Path) -> JobRows:
    return JobRows.at(tmp_path)


def make(rows: JobRows, slug: str = "ada", name: str = "laptop") -> IssuedToken:
    with rows.store.begin() as tx:
        return tx.agents.tokens.create_token(tx.agents.get_agent_by_slug(slug), name, OPERATOR)


def revoke(rows: JobRows, number: int, slug: str = "ada") -> None:
    with rows.store.begin() as tx:
        tx.agents.tokens.revoke_token(tx.agents.get_agent_by_slug(slug), number, OPERATOR)


def whose(rows: JobRows, token: str) -> str | None:
    with rows.store.view() as tx:
        holder = tx.agents.tokens.find_agent(token)
        return holder.agent.slug if holder is not None else None


def log(rows: JobRows) -> list[tuple[str, str, str]]:
    with rows.store.view() as tx:
        return [
            (entry.actor, entry.action, entry.subject) for entry in reversed(tx.system.audit.list_latest_entries(10))
        ]


def test_a_token_opens_for_its_agent_and_is_kept_nowhere(rows: JobRows, tmp_path: Path) -> None:
    made = make(rows)
    assert made.token.startswith(BEARER_PREFIX)
    assert len(base64.urlsafe_b64decode(made.token.removeprefix(BEARER_PREFIX) + "=")) == 32
    assert made.token.endswith(made.ending)
    assert whose(rows, made.token) == "ada"
    assert whose(rows, made.token[:-1]) is None
    kept = dump(tmp_path / "maestro.db")
    assert "laptop" in kept
    assert made.token not in kept
    assert log(rows) == [(OPERATOR, "token.create", "ada")]


def test_a_revoked_token_opens_nothing_and_the_others_still_do(rows: JobRows) -> None:
    first, second = make(rows), make(rows)
    revoke(rows, first.id)
    revoke(rows, first.id)
    assert (whose(rows, first.token), whose(rows, second.token)) == (None, "ada")
    assert [action for _, action, _ in log(rows)] == ["token.create", "token.create", "token.revoke"]


def test_a_token_is_revoked_by_its_own_agent_alone(rows: JobRows) -> None:
    add_agent(rows, "bob")
    made = make(rows)
    for slug, number in (("bob", made.id), ("ada", 7)):
        with pytest.raises(NotFound, match=f"agent {slug} has no token {number}"):
            revoke(rows, number, slug)
    assert whose(rows, made.token) == "ada"


def test_that_a_token_is_used_is_noted_once_a_minute(rows: JobRows) -> None:
    made, noted = make(rows), []
    for seconds in (0, 30, 30, 1):
        rows.clock.go(seconds=seconds)
        with rows.store.begin() as tx:
            (token,) = tx.agents.tokens.list_tokens_of_agent(tx.agents.get_agent_by_slug("ada"), None, 10)
            tx.agents.tokens.record_use(token)
        with rows.store.view() as tx:
            (token,) = tx.agents.tokens.list_tokens_of_agent(tx.agents.get_agent_by_slug("ada"), None, 10)
            assert token.last_used_at is not None
            noted.append(token.last_used_at - made.created_at)
    assert noted == [timedelta(), timedelta(), timedelta(minutes=1), timedelta(minutes=1)]


def test_no_agent_has_more_tokens_than_anybody_can_look_after(rows: JobRows) -> None:
    numbers = [make(rows).id for _ in range(MOST_TOKENS)]
    with pytest.raises(Conflict, match="revoke unused tokens first"):
        make(rows)
    revoke(rows, numbers[0])
    make(rows)


def test_an_archived_agent_gets_no_token(rows: JobRows) -> None:
    add_agent(rows, "bob")
    with rows.store.begin() as tx:
        tx.agents.change(tx.agents.get_agent_by_slug("bob"), AgentChange(status=AgentStatus.ARCHIVED), OPERATOR)
    with pytest.raises(Conflict, match="agent bob is archived"):
        make(rows, "bob")


def test_tokens_go_with_an_agent_that_is_removed_for_good(rows: JobRows) -> None:
    add_agent(rows, "bob")
    made = make(rows, "bob")
    with rows.store.begin() as tx:
        tx.agents.purge(tx.agents.get_agent_by_slug("bob"), OPERATOR)
    assert whose(rows, made.token) is None
