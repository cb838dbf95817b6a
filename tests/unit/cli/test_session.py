"""``maestro session``: which posts of #maestro agents see, from a terminal (docs/decisions.md: chat sessions)."""

import json
from pathlib import Path

from maestro.domain.agent_chat import HUMAN
from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro


def post(rows: JobRows) -> str:
    """Post, and return the session that it is in."""
    with rows.store.begin() as tx:
        tx.chat.add_post(HUMAN, "hello")
        return tx.chat.find_current_session() or ""


def test_a_session_is_shown_ended_and_begun(rows: JobRows, maestro: Maestro) -> None:
    assert maestro("session", "show").out == "No session is open; the next post opens one.\n"
    assert maestro("session", "show", "--json").json == {"id": "", "startedAt": None, "posts": 0}
    first = post(rows)
    assert maestro("session", "show").out.startswith(f"the session {first} is open since ")
    assert maestro("session", "show").out.endswith(", with 1 post\n")
    second = maestro("session", "new", "--json").json
    assert (second["id"] != first, second["posts"]) == (True, 0)
    assert second["id"] in maestro("session", "end").out
    assert maestro("session", "end").out == "No session is open; the next post opens one.\n"
    with rows.store.view() as tx:
        log = [
            (entry.actor, entry.action, entry.subject) for entry in reversed(tx.system.audit.list_latest_entries(10))
        ]
    assert log == [("operator", "session.new", second["id"]), ("operator", "session.end", second["id"])]


def test_without_a_chat_there_is_nothing_to_begin(rows: JobRows, maestro: Maestro, tmp_path: Path) -> None:
    file = tmp_path / "maestro.json"
    file.write_text(json.dumps({"dataDir": str(tmp_path / "data"), "chat": {"enabled": False}}))
    ran = maestro("session", "new", "--config", str(file))
    assert (ran.code, ran.err.count("\n"), "set chat.enabled to true" in ran.err) == (1, 1, True)
    with rows.store.view() as tx:
        assert tx.chat.find_current_session() is None


def test_one_that_the_configuration_keeps_is_changed_there(rows: JobRows, maestro: Maestro, tmp_path: Path) -> None:
    assert post(rows)
    file = tmp_path / "maestro.json"
    file.write_text(json.dumps({"dataDir": str(tmp_path / "data"), "session": {"id": "spring"}}))
    for command in ("new", "end"):
        ran = maestro("session", command, "--config", str(file))
        assert (ran.code, ran.err.count("\n"), "session.id keeps the session 'spring'" in ran.err) == (1, 1, True)
