"""The large store of the benchmark is one that the product could have written."""

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.big_store import Size
from benchmarks.measure.store_size import STEPS, section
from benchmarks.store_steps import WARM_UP, measure

SIZE = Size(conversations=200, rounds=2, agents=20, facts=60, skills=8)


def counts(path: Path, *queries: str) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [int(database.execute(query).fetchone()[0]) for query in queries]


def test_messages_go_through_the_steps_over_a_store_that_is_whole(tmp_path: Path) -> None:
    told = measure(tmp_path, 1, 20, SIZE)
    new = WARM_UP + 20
    with closing(sqlite3.connect(tmp_path / "maestro.db")) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = counts(
        tmp_path / "maestro.db",
        "SELECT count(*) FROM messages",
        "SELECT count(*) FROM conversations",
        "SELECT count(*) FROM queue",
        "SELECT count(*) FROM memory_facts WHERE category <> 'sticky'",
        "SELECT count(*) FROM memory_facts WHERE category = 'sticky'",
        "SELECT count(*) FROM compactions JOIN conversations USING (agent_id) WHERE conversation_id = conversations.id",
        "SELECT sum(message_count) FROM conversations",
        "SELECT sum(total_tokens_estimate) FROM conversations",
    )
    said = SIZE.messages + new
    tokens = counts(tmp_path / "maestro.db", "SELECT sum(token_estimate) FROM messages")
    facts = SIZE.facts, SIZE.sticky * SIZE.agents
    assert found == [said, SIZE.conversations, SIZE.jobs + new, *facts, SIZE.compactions, said, *tokens]
    assert set(told["took"][0]) == {name for step in STEPS for name in (step, f"{step} CPU")}
    assert {len(values) for values in told["took"][0].values()} == {20}
    shown = section(told, SIZE)
    assert [one.what for one in shown.figures if one.target is not None] == [
        "routing: choosing the agent, median",
        "upsert: recording the message, median",
        "context: building the prompt, median",
    ]
