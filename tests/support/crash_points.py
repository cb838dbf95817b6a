"""Every write transaction and effect of a recorded run, and the points to die at that follow from them.

Nothing here names a transaction of the product: temporary triggers report each row that a transaction changes, so a
step that is added, merged or renamed changes the list of points by itself. A row that tests care about has a label
("route done", "model-1 request"); a transaction goes by the labels of its rows, and is met under each of them.
"""

import json
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import sql

COLUMNS = ("step", "state", "purpose", "number", "place", "claimed_at", "platform_message_id", "revision", "transcript")
"""The columns that labels are made from."""
HOUSEKEEPING = ("connectors",)
"""Tables that are written at any time and that no message waits for."""
NOTE = "note_change"
STEP_STATES = {"running": "begins", "done": "done", "failed": "failed", "waiting": "waits"}
CALL_STATES = {"answered": "answer", "failed": "failure", "interrupted": "interruption"}

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One row that a transaction inserted, updated or deleted."""

    table: str
    verb: str
    label: str

    @property
    def name(self) -> str:
        """Its label, or what was done to which table where it has none."""
        return self.label or f"{self.verb} {self.table}"


def _step(_: str, new: Values, old: Values) -> str:
    state = STEP_STATES.get(new.get("state", ""))
    return f"{new['step']} {state}" if state and new["state"] != old.get("state") else ""


def _inbox(verb: str, *_: Values) -> str:
    return "accept" if verb == "insert" else ""


def _job(verb: str, new: Values, old: Values) -> str:
    if verb != "update" or new["claimed_at"] == old["claimed_at"]:
        return ""
    return "claim" if new["claimed_at"] else "release of a claim"


def _call(verb: str, new: Values, old: Values) -> str:
    if verb == "delete" or new["state"] == old.get("state"):
        return ""
    name = f"model-{new['number']}" if new["purpose"] == "answer" else new["purpose"]
    return f"{name} {CALL_STATES.get(new['state'], 'request')}"


def _reservation(verb: str, *_: Values) -> str:
    return {"insert": "reservation", "delete": "release"}.get(verb, "")


def _tool_call(verb: str, new: Values, _: Values) -> str:
    return f"tool-{new['number']}-{new['place']} call" if verb == "insert" else ""


def _delivery(verb: str, new: Values, old: Values) -> str:
    if verb == "insert":
        return "chunks"
    return "receipt" if new.get("state") == "sent" != old["state"] else ""


def _draft(verb: str, new: Values, old: Values) -> str:
    if verb == "delete":
        return ""
    if new["revision"] != old.get("revision"):
        return "draft"
    if new["platform_message_id"] != old["platform_message_id"]:
        return "placeholder receipt"
    return "placeholder" if new["state"] == "sending" != old["state"] else ""


def _media(verb: str, new: Values, old: Values) -> str:
    return "transcript" if verb == "update" and new["transcript"] != old["transcript"] else ""


def _added(label: str) -> Callable[[str, Values, Values], str]:
    return lambda verb, *_: label if verb == "insert" else ""


def _updated(label: str) -> Callable[[str, Values, Values], str]:
    return lambda verb, *_: label if verb == "update" else ""


_LABELS: Mapping[str, Callable[[str, Values, Values], str]] = {
    "job_steps": _step,
    "inbox": _inbox,
    "queue": _job,
    "llm_calls": _call,
    "reservations": _reservation,
    "tool_calls": _tool_call,
    "deliveries": _delivery,
    "drafts": _draft,
    "memory_facts": _added("fact"),
    "media": _media,
    "webhook_deliveries": _added("webhook"),
    "replay_items": _updated("batch item"),
}


NOTE_FUNCTION = """
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE NOTICE 'note_change %', json_build_array(
    TG_TABLE_NAME, lower(TG_OP),
    CASE WHEN TG_OP <> 'DELETE' THEN to_json(NEW)::text END, CASE WHEN TG_OP <> 'INSERT' THEN to_json(OLD)::text END
  );
  RETURN NULL;
END $$
"""


class RowWatch:
    """Reports each row that a connection changes, by triggers."""

    def __init__(self, report: Callable[[Change], None]) -> None:
        """``report`` is called with each change, in the thread that makes it, at once or after its statement."""
        self._report = report
        self._watched: WeakSet[psycopg.Connection[Any]] = WeakSet()

    def follow(self, driver: Any) -> None:
        """Watch a connection, unless it is watched already."""
        if isinstance(driver, sqlite3.Connection):
            self._follow_sqlite(driver)
        elif driver not in self._watched:
            self._watched.add(driver)
            self._follow_postgresql(driver)

    def catch_up(self, driver: Any) -> None:
        """Let PostgreSQL run the statements that it would get with the commit, so that their changes are reported."""
        if not isinstance(driver, sqlite3.Connection):
            driver.send_deferred()

    def _follow_sqlite(self, driver: sqlite3.Connection) -> None:
        if driver.execute("SELECT 1 FROM temp.sqlite_master LIMIT 1").fetchone():
            return
        driver.create_function(NOTE, 4, self._note)
        for statement in list(_triggers(driver)):
            driver.execute(statement)

    def _follow_postgresql(self, driver: psycopg.Connection[Any]) -> None:
        """Watch by notices, which arrive with the result of a statement."""
        driver.add_notice_handler(self._hear)
        found = driver.execute("SELECT 1 FROM pg_proc WHERE proname = 'note_change'").fetchone()
        if not found:
            driver.execute(NOTE_FUNCTION)
            tables = driver.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
            for (table,) in tables:
                driver.execute(
                    sql.SQL(
                        "CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON {} "
                        "FOR EACH ROW EXECUTE FUNCTION note_change()"
                    ).format(sql.Identifier(table))
                )

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        head, _, text = (notice.message_primary or "").partition(" ")
        if head == NOTE:
            self._note(*json.loads(text))

    def _note(self, table: str, verb: str, new: str | None, old: str | None) -> None:
        if table not in HOUSEKEEPING:
            label = _LABELS[table](verb, json.loads(new or "{}"), json.loads(old or "{}")) if table in _LABELS else ""
            self._report(Change(table, verb, label))


def _triggers(driver: sqlite3.Connection) -> Iterator[str]:
    tables = driver.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    virtual = tuple(f"{name}_" for name, definition in tables if "VIRTUAL" in definition)
    for name, definition in tables:
        if name.startswith(("sqlite_", *virtual)) or "VIRTUAL" in definition:
            continue
        columns = [row[1] for row in driver.execute(f"PRAGMA table_info({name})") if row[1] in COLUMNS]
        for verb in ("insert", "update", "delete"):
            new = _values(columns, "NEW") if verb != "delete" else "NULL"
            old = _values(columns, "OLD") if verb != "insert" else "NULL"
            yield (
                f"CREATE TEMP TRIGGER noted_{name}_{verb} AFTER {verb} ON main.{name} "
                f"BEGIN SELECT {NOTE}('{name}', '{verb}', {new}, {old}); END"
            )


def _values(columns: Sequence[str], row: str) -> str:
    return f"json_object({', '.join(f'{chr(39)}{column}{chr(39)}, {row}.{column}' for column in columns)})"


@dataclass(frozen=True)
class Commit:
    """A transaction that changed rows, in the order in which it changed them."""

    changes: tuple[Change, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """What the transaction goes by, each once."""
        return tuple(dict.fromkeys(change.label for change in self.changes if change.label))

    @property
    def name(self) -> str:
        """All labels, or every kind of change where no row has one."""
        return " + ".join(self.labels or dict.fromkeys(change.name for change in self.changes))

    def points(self, when: str) -> list[str]:
        """Return the names under which ``before`` or ``after`` of it is known."""
        return [f"{when} {name}" for name in dict.fromkeys((self.name, *self.labels))]


def inside(changes: Sequence[Change]) -> str:
    """Return the point after these changes of a transaction that goes on."""
    return f"inside {changes[0].name} at {len(changes)}"


Moment = Commit | str
"""A transaction, or the point before or after an effect."""


@dataclass(frozen=True)
class Recording:
    """What a process did, in order; its points are those of the moments from ``first`` up to, and without, ``last``."""

    moments: tuple[Moment, ...]
    first: int = 0
    last: int = sys.maxsize

    @classmethod
    def read(cls, lines: Sequence[str]) -> "Recording":
        """Read the lines that the process has left."""
        return cls(tuple(_moment(json.loads(line)) for line in lines))

    @property
    def commits(self) -> list[Commit]:
        """The transactions."""
        return [moment for moment in self.moments if isinstance(moment, Commit)]

    def beside(self, other: "Recording") -> "Recording":
        """Return the same recording without the points before and after which it is the same as another one."""
        pairs = list(zip(self._names, other._names, strict=False))
        start = next((n for n, (ours, theirs) in enumerate(pairs) if ours != theirs), len(pairs))
        ends = list(zip(reversed(self._names[start:]), reversed(other._names[start:]), strict=False))
        same = next((n for n, (ours, theirs) in enumerate(ends) if ours != theirs), len(ends))
        return replace(self, first=start, last=len(self.moments) - same)

    def gaps(self) -> list[list[str]]:
        """Return every point to die at, in order, in lists of points with the same state of the store and the world.

        Only a commit or an effect changes that state: to die after a commit, inside the next transaction or just
        before its commit is all the same to what goes on from there.
        """
        counts: Counter[str] = Counter()
        gaps: list[list[str]] = [[]]
        for number, moment in enumerate(self.moments):
            before = [_numbered(name, counts) for name in _points_before(moment)]
            after = [_numbered(name, counts) for name in _points_after(moment)]
            if not self.first <= number < self.last:
                continue
            gaps[-1] += before
            if before:
                gaps.append([])
            gaps[-1] += after
        return [gap for gap in gaps if gap]

    @property
    def _names(self) -> list[str]:
        return [moment if isinstance(moment, str) else moment.name for moment in self.moments]

    def points(self) -> list[str]:
        """Return every point to die at, in order."""
        return [point for gap in self.gaps() for point in gap]

    def sample(self, seed: str = "") -> list[str]:
        """Return one point of each gap, always the same ones for a seed."""
        return [random.Random(f"{seed}{gap}").choice(gap) for gap in self.gaps()]


def _points_before(moment: Moment) -> list[str]:
    """Return the points at which an effect is yet to come, or a transaction is not committed."""
    if isinstance(moment, str):
        return [moment] if moment.startswith("before") else []
    changes = moment.changes
    return [*(inside(changes[:number]) for number in range(1, len(changes))), f"before {moment.name}"]


def _points_after(moment: Moment) -> list[str]:
    if isinstance(moment, str):
        return [] if moment.startswith("before") else [moment]
    return [f"after {moment.name}"]


def _numbered(name: str, counts: Counter[str]) -> str:
    counts[name] += 1
    return name if counts[name] == 1 else f"{name} ({counts[name]})"


def _moment(noted: Any) -> Moment:
    return noted if isinstance(noted, str) else Commit(tuple(Change(*change) for change in noted))
