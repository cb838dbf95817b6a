"""Posts, cursors, reminders and sessions of #maestro, whoever posts and reads at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Barrier

import pytest

from maestro.domain.agent_chat import ARCHITECT, HUMAN, ChatMessage
from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.errors import Forbidden
from maestro.domain.jobs.job import JobStatus
from maestro.store.store import Store
from tests.support.job_rows import JobRows

AGENTS = 100
ROUNDS = 50
PROCESSES = 4
"""Stores on one file, each with a writer of its own, as processes have them."""


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def add_agent(rows: JobRows, slug: str, role: str = "coder", status: AgentStatus = AgentStatus.ACTIVE) -> None:
    with rows.store.begin() as tx:
        tx.agents.save_agent(
            Agent(slug=slug, name=slug, role=role, status=status, created_at=tx.now, updated_at=tx.now)
        )


def post(rows: JobRows, text: str = "hello", author: str = HUMAN) -> int:
    with rows.store.begin() as tx:
        return tx.chat.add_post(author, text)


def unread(rows: JobRows, slug: str = "ada") -> tuple[list[str], int]:
    with rows.store.view() as tx:
        found = tx.chat.list_unread(slug)
    return [message.text for message in found.messages], found.new_pointer


def texts(rows: JobRows) -> list[str]:
    with rows.store.view() as tx:
        return [message.text for message in tx.chat.list_posts()]


def test_a_post_has_the_open_session_and_a_time_in_rfc_3339(rows: JobRows) -> None:
    rows.clock.now = datetime(2026, 11, 22, 1, 2, 3, 4_999, tzinfo=timezone(timedelta(hours=1)))
    post(rows, "héllo\n🎈", "@ada")
    with rows.store.view() as tx:
        (message,) = tx.chat.list_posts()
        kept = tx.chat._session.get(ChatMessage, message.id)
        assert kept is not None
        assert kept.session_id == tx.chat.find_current_session()
    assert (message.ts, message.author, message.text) == ("2026-11-22T00:02:03.004Z", "@ada", "héllo\n🎈")


def test_ids_rise_across_sessions_and_are_never_used_again(rows: JobRows) -> None:
    first = post(rows)
    with rows.store.begin() as tx:
        tx.chat.open_session("another")
        tx.chat._session.connection().exec_driver_sql("DELETE FROM chat")
    assert post(rows) == first + 1


def test_only_posts_of_the_open_session_are_seen(rows: JobRows) -> None:
    post(rows, "old")
    with rows.store.begin() as tx:
        tx.chat.open_session("another")
    assert (unread(rows), texts(rows)) == (([], 0), [])
    newer = post(rows, "new")
    assert (unread(rows), texts(rows)) == ((["new"], newer), ["new"])
    with rows.store.begin() as tx:
        tx.chat.end_current_session()
        assert tx.chat.find_newest_id() == 0
    assert (unread(rows), texts(rows)) == (([], 0), [])


@pytest.mark.parametrize(
    ("author", "said"),
    [
        ("@nobody", '"@nobody" is no author'),
        ("ada", '"ada" is no author'),
        ("@Ada", '"@Ada" is no author'),
        ("", '"" is no author'),
        ("@planner", "@planner takes no part"),
        ("@architect", "@architect takes no part"),
        ("@sleeper", "@sleeper takes no part"),
    ],
)
def test_only_people_and_agents_that_take_part_post(rows: JobRows, author: str, said: str) -> None:
    add_agent(rows, "planner", ARCHITECT)
    add_agent(rows, "architect")
    add_agent(rows, "sleeper", status=AgentStatus.PAUSED)
    with pytest.raises(Forbidden, match=said):
        post(rows, "hello", author)
    assert texts(rows) == []


def test_a_cursor_never_goes_back(rows: JobRows) -> None:
    ids = [post(rows, str(number)) for number in range(3)]
    for pointer in (ids[1], ids[0]):
        with rows.store.begin() as tx:
            tx.chat.mark_read("ada", pointer)
    assert unread(rows) == (["2"], ids[2])
    assert unread(rows, "bob") == (["0", "1", "2"], ids[2])
    with rows.store.begin() as tx:
        tx.chat.mark_read("ada", ids[2])
    assert unread(rows) == ([], ids[2]), "without anything new the pointer is the cursor"


def test_the_oldest_unread_posts_come_first_when_not_all_are_wanted(rows: JobRows) -> None:
    ids = [post(rows, str(number)) for number in range(3)]
    with rows.store.view() as tx:
        some = tx.chat.list_unread("ada", 2)
    assert ([message.text for message in some.messages], some.new_pointer) == (["0", "1"], ids[1])


def test_who_asks_from_outside_says_that_it_has_read_what_it_was_offered(rows: JobRows) -> None:
    def offered() -> tuple[list[str], int]:
        with rows.store.begin() as tx:
            found = tx.chat.mark_offered("ada")
        return [message.text for message in found.messages], found.new_pointer

    first = post(rows, "one")
    assert offered() == (["one"], first)
    assert unread(rows) == (["one"], first), "it may have been lost on its way"
    second = post(rows, "two")
    assert offered() == (["two"], second)
    assert unread(rows) == (["two"], second)
    assert offered() == ([], second)
    assert unread(rows) == ([], second)


def test_a_reminder_waits_for_its_job_or_for_the_end_of_it(rows: JobRows) -> None:
    chatty, other = rows.add(), rows.add()

    def due(job_id: str, slug: str = "ada") -> bool:
        with rows.store.view() as tx:
            return tx.chat.reminders.is_due(slug, job_id)

    for _ in range(2):
        with rows.store.begin() as tx:
            tx.chat.reminders.record_reminder("ada", chatty)
    assert (due(chatty), due(other), due(chatty, "bob")) == (True, False, False)
    rows.end(chatty, JobStatus.CANCELLED)
    assert due(other)
    with rows.store.begin() as tx:
        tx.chat.reminders.clear_reminder("ada", other)
    assert not due(chatty)


def test_a_session_is_joined_pinned_and_opened_again(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        opened = tx.chat.join_current_session()
        assert tx.chat.join_current_session() == opened, "it goes on after a crash"
        assert tx.chat.join_current_session("pinned") == "pinned"
        assert tx.chat.find_current_session() == "pinned"
        ended = tx.chat.get_session(opened)
        assert ended is not None
        assert ended.ended_at is not None
        assert tx.chat.end_current_session() == "pinned"
        assert (tx.chat.end_current_session(), tx.chat.find_current_session()) == (None, None)
        assert tx.chat.join_current_session("pinned") == "pinned"


def test_at_most_one_session_is_open_however_many_processes_start_at_once(rows: JobRows, tmp_path: Path) -> None:
    processes = [Store(tmp_path / "maestro.db") for _ in range(8)]
    together = Barrier(len(processes))

    def start(place: int) -> str:
        together.wait()
        with processes[place].begin() as tx:
            return tx.chat.join_current_session("pinned" if place % 4 == 0 else "")

    with ThreadPoolExecutor(len(processes)) as threads:
        joined = set(threads.map(start, range(len(processes))))
    for process in processes:
        process.close()
    with rows.store.view() as tx:
        assert tx.chat.find_current_session() in joined
        opened = tx.chat._session.connection().exec_driver_sql("SELECT id FROM sessions WHERE ended_at IS NULL")
        assert len(opened.all()) == 1


def test_a_hundred_agents_post_and_read_at_once(rows: JobRows, tmp_path: Path) -> None:
    processes = [Store(tmp_path / "maestro.db") for _ in range(PROCESSES)]
    slugs = [f"coder-{number}" for number in range(AGENTS)]
    for slug in slugs:
        add_agent(rows, slug)
    together = Barrier(AGENTS)

    def read(store: Store, slug: str) -> list[int]:
        with store.view() as tx:
            return [message.id for message in tx.chat.list_unread(slug).messages]

    def live(slug: str) -> tuple[list[int], list[int]]:
        store = processes[slugs.index(slug) % PROCESSES]
        together.wait()
        posted: list[int] = []
        heard: list[int] = []
        for number in range(ROUNDS):
            with store.begin() as tx:
                posted.append(tx.chat.add_post(f"@{slug}", f"{slug} {number}"))
            heard += read(store, slug)
            with store.begin() as tx:
                tx.chat.mark_read(slug, heard[-1])
        return posted, heard

    with ThreadPoolExecutor(AGENTS) as threads:
        lives = dict(zip(slugs, threads.map(live, slugs), strict=True))
    for process in processes:
        process.close()
    everything = sorted(one for posted, _ in lives.values() for one in posted)
    assert len(set(everything)) == AGENTS * ROUNDS
    for slug, (_, heard) in lives.items():
        assert heard + read(rows.store, slug) == everything, "nobody misses a post, and nobody reads one twice"
