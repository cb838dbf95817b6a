"""Settings that change while Maestro runs: versions in the store that every process takes over."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import JsonValue
from structlog.testing import capture_logs

from maestro.domain.errors import Conflict, InvalidEdit, NeedsRestart
from maestro.observability.logs import OURS, set_level
from maestro.operations.settings import SettingsOperations
from maestro.settings import Loaded, Settings
from maestro.settings import live as module
from maestro.settings.control import EffectiveSettings, flatten_changes
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store

LIMIT = "chat.limits.maxMessageChars"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Open a store."""
    store = fresh_store(tmp_path / "maestro.db")
    yield store
    store.close()


def process() -> LiveSettings:
    """Return the settings of one more process."""
    return LiveSettings(Loaded(Settings(), {}, None))


def put(store: Store, values: Mapping[str, JsonValue], version: int | None = None) -> int:
    """Set values by a process that nobody else knows of, and return the version."""
    return SettingsOperations(store, EffectiveSettings(process())).change(values, version, "somebody").version


async def until(holds: Callable[[], bool]) -> None:
    """Return as soon as this holds."""
    while True:
        if holds():
            return
        await asyncio.sleep(0)


def test_another_process_sees_a_change_at_its_next_look(store: Store) -> None:
    live = process()
    rules = live.of(lambda settings: [settings.chat.limits.max_message_chars])
    before = rules()
    assert rules() is before, "rules are made once, not at each use"
    put(store, {LIMIT: 100})
    assert rules() == [4096]
    live.apply_changes(store)
    assert (rules(), live.current().chat.limits.max_message_chars) == ([100], 100)
    put(store, {LIMIT: None})
    live.apply_changes(store)
    assert rules() == [4096]


def test_a_look_that_finds_nothing_new_reads_one_number(store: Store) -> None:
    live = process()
    put(store, {LIMIT: 100})
    live.apply_changes(store)
    seen = live.current()
    live.apply_changes(store)
    assert live.current() is seen


async def test_a_watching_process_takes_a_change_over_by_itself(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    live, told, loop = process(), asyncio.Event(), asyncio.get_running_loop()

    def tell(settings: Settings) -> None:
        assert settings.logs.level == "error"
        loop.call_soon_threadsafe(told.set)

    async with live.keep_current(store, tell):
        await asyncio.to_thread(put, store, {"logs.level": "error"})
        await asyncio.wait_for(told.wait(), 60)
    assert live.current().logs.level == "error"


async def test_a_look_that_fails_is_not_the_last_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    live = process()
    async with live.keep_current(store, lambda _: None), asyncio.timeout(20):
        with capture_logs() as logs:
            await asyncio.to_thread(put, store, {LIMIT: 100})
            with closing(sqlite3.connect(tmp_path / "maestro.db")) as file, file:
                file.execute("INSERT INTO settings_versions (values_json, actor, changed_at) VALUES ('[1', '', '')")
            await until(lambda: any(entry["event"] == "settings.broken" for entry in logs))
        with store.begin() as tx:
            tx.system.settings.add_version({LIMIT: 200}, "somebody")
        await until(lambda: live.current().chat.limits.max_message_chars == 200)


async def test_what_was_set_is_there_after_a_restart_and_what_cannot_be_is_reported(store: Store) -> None:
    put(store, {LIMIT: 100})
    with store.begin() as tx:
        tx.system.settings.add_version(
            {**tx.system.settings.read_values(), "jobs.maxAttempts": 0, "jobs.ofOld": 1}, "an older release"
        )
    live = process()
    with capture_logs() as logs:
        async with live.keep_current(store, lambda _: None):
            pass
        process().apply_changes(store)  # as a command does, whose output is for programs
    assert len(logs) == 2
    assert live.current().chat.limits.max_message_chars == 100
    assert live.current().jobs.max_attempts == 3
    assert {line["key"] for line in logs} == {"jobs.maxAttempts", "jobs.ofOld"}
    control = SettingsOperations(store, EffectiveSettings(live))
    problems = {one.key: one.problem for one in control.page().items if one.problem}
    assert problems == {"jobs.maxAttempts": "jobs.maxAttempts: must be at least 1"}
    control.change({LIMIT: 200}, None, "somebody")  # what is wrong already keeps nobody from setting something else
    control.change({"jobs.ofOld": None, "jobs.maxAttempts": None}, None, "somebody")
    assert not live.overlaid.refused


def test_a_change_is_all_or_nothing(store: Store) -> None:
    with pytest.raises(InvalidEdit, match=r"jobs\.maxAttempts: must be at least 1"):
        put(store, {LIMIT: 100, "jobs.maxAttempts": 0})
    with pytest.raises(NeedsRestart, match=r"webui\.port: .*MAESTRO_WEBUI_PORT"):
        put(store, {LIMIT: 100, "webui.port": 1})
    with pytest.raises(InvalidEdit, match="unknown key"):
        put(store, {"webui.port": 1, "webui.prot": 1})
    with store.view() as tx:
        assert (tx.system.settings.newest_version(), tx.system.audit.list_latest_entries(1)) == (0, [])


def test_who_changes_what_somebody_else_changed_meanwhile_is_told(store: Store) -> None:
    read = put(store, {LIMIT: 100})
    put(store, {LIMIT: 200}, read)
    with pytest.raises(Conflict, match="version 2 is the newest, not 1"):
        put(store, {LIMIT: 300}, read)


def test_a_rule_of_a_section_judges_what_holds_together(store: Store) -> None:
    put(store, {"budgets.onLimit": "fallback", "budgets.fallbackModel": "openai/small"})
    with pytest.raises(InvalidEdit, match=r"budgets\.fallbackModel must be set"):
        put(store, {"budgets.fallbackModel": None})
    put(store, {"budgets.fallbackModel": None, "budgets.onLimit": None})


def test_the_audit_log_says_who_changed_which_key_from_what_to_what(store: Store) -> None:
    put(store, {LIMIT: 100, "tools.approval": ["run_shell"]})
    put(store, {LIMIT: 100})  # nothing new
    put(store, {LIMIT: None})
    with store.view() as tx:
        noted = [
            (one.actor, one.action, one.subject, one.detail) for one in reversed(tx.system.audit.list_latest_entries(9))
        ]
        assert tx.system.settings.newest_version() == 2
    assert noted == [
        ("somebody", "settings.change", LIMIT, "4096 -> 100"),
        ("somebody", "settings.change", "tools.approval", '[] -> ["run_shell"]'),
        ("somebody", "settings.change", LIMIT, "100 -> 4096 (taken back)"),
    ]


def test_sections_may_be_written_as_in_the_file() -> None:
    nested: dict[str, JsonValue] = {
        "chat": {"limits": {"maxMessageChars": 1}, "scanner": {"enabled": False}},
        "x": {"y": 1},
    }
    assert flatten_changes(nested) == {LIMIT: 1, "chat.scanner.enabled": False, "x": {"y": 1}}


def test_the_log_follows_its_level() -> None:
    root = logging.getLogger()
    before = root.level
    try:
        set_level("error")
        assert not logging.getLogger("maestro").isEnabledFor(logging.WARNING)
        set_level("debug")
        assert logging.getLogger("maestro").isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("a_library").isEnabledFor(logging.INFO)
    finally:
        root.setLevel(before)
        for name in OURS:
            logging.getLogger(name).setLevel(logging.NOTSET)
