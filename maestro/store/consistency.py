"""Queries that find contradictions between rows, and the repair of tables that follow from others (ADR 46)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, inspect, text

from maestro.domain.consistency import Finding
from maestro.domain.deliveries import Delivery, JobFile
from maestro.domain.llm.budgets import DUST
from maestro.domain.media import MediaFile
from maestro.domain.people.people import UploadedFile
from maestro.domain.tools import ToolPicture
from maestro.store.engine.copying import TableCopier

MEDIA_COLUMNS = tuple(
    (str(table.__tablename__), "digest") for table in (MediaFile, UploadedFile, JobFile, ToolPicture, Delivery)
)
"""The columns that name a file of the media folder by its SHA-256."""

SIZED = ("media", "uploads", "job_files")
"""The tables that also have the size of the file that they name."""

MOST_NAMED = 20
"""The most findings of one kind that are named; the others are counted."""

CLAIM_SECONDS = timedelta(minutes=1)
"""The time after which a claimed job should have been started, if a dispatcher runs."""

_OPEN = "('pending', 'running', 'waiting')"
_REPORT = "This cannot happen in normal operation: keep a backup, and report it with this line."
_RECONCILED = "A running worker repairs this within jobs.reconcileSeconds; start one."


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A query for rows that contradict others: its first column is the subject, the others complete the problem."""

    name: str
    query: str
    problem: str
    fix: str


ROW_CHECKS = (
    RowCheck(
        "messages without a job",
        # Retention deletes a job and empties its message, whose id stays; a control word may outlive its job.
        "SELECT i.id, i.job_id FROM inbox i LEFT JOIN queue q ON q.id = i.job_id"
        " WHERE q.id IS NULL AND i.content <> '' AND i.control = '' ORDER BY 1",
        "message {0} names the job {1}, which does not exist, so it is never answered",
        "Ask its sender to send it again. " + _REPORT,
    ),
    RowCheck(
        "lanes",
        "SELECT lane, count(*) FROM queue WHERE status = 'running' AND lane IS NOT NULL GROUP BY lane"
        " HAVING count(*) > 1 ORDER BY 1",
        "{1} jobs of the lane {0} run at the same time, so answers may come out of order",
        _REPORT,
    ),
    RowCheck(
        "lane positions",
        "SELECT id, lane FROM queue WHERE lane IS NOT NULL AND turn IS NULL AND status IN {OPEN} ORDER BY 1",
        "the open job {0} has no position in its lane {1}, so it never starts",
        "Cancel it and start it anew: `maestro jobs cancel {0}`, then `maestro jobs replay {0}`.",
    ),
    RowCheck(
        "lane positions",
        "SELECT lane, turn, count(*) FROM queue WHERE turn IS NOT NULL AND lane IS NOT NULL"
        " AND status IN {OPEN} GROUP BY lane, turn HAVING count(*) > 1 ORDER BY 1",
        "{2} open jobs share the position {1} of the lane {0}",
        _REPORT,
    ),
    RowCheck(
        "claims",
        "SELECT id, claimed_at FROM queue WHERE status = 'pending' AND claimed_at > :soon ORDER BY 1",
        "the claim of job {0} lies in the future ({1}): the clock was set back",
        "Nothing to do: such a claim does not count. Set the clock of this machine.",
    ),
    RowCheck(
        "ends of jobs",
        "SELECT id, status FROM queue WHERE (status IN {OPEN}) = (completed_at IS NOT NULL) ORDER BY 1",
        "job {0} is {1}, and its time of completion says otherwise",
        _REPORT,
    ),
    RowCheck(
        "waiting jobs",
        "SELECT id FROM queue WHERE status = 'waiting' AND waits_for IS NULL ORDER BY 1",
        "job {0} waits for nothing, so nothing wakes it",
        "`maestro jobs replay {0} --resume` continues it.",
    ),
    RowCheck(
        "merged jobs",
        "SELECT q.id, q.merged_into FROM queue q LEFT JOIN queue h ON h.id = q.merged_into"
        " WHERE q.merged_into IS NOT NULL AND q.status IN {OPEN} AND (h.id IS NULL OR h.status NOT IN {OPEN})"
        " ORDER BY 1",
        "the open job {0} leaves its answer to the job {1}, which has ended",
        "`maestro jobs cancel {0}`, then `maestro jobs replay {0}` answers its message.",
    ),
    RowCheck(
        "deliveries",
        "SELECT d.id, d.state, q.id, q.status FROM deliveries d JOIN queue q ON q.id = d.job_id"
        " WHERE d.state IN ('pending', 'sending') AND q.status NOT IN {OPEN} ORDER BY 1",
        "chunk {0} is {1}, although its job {2} is {3}",
        "Resume the job to send the rest of its answer: `maestro jobs replay {2} --resume`.",
    ),
    RowCheck(
        "deliveries",
        "SELECT id, state, job_id FROM deliveries WHERE (state = 'sent' AND sent_at IS NULL)"
        " OR (state = 'pending' AND tried_at IS NOT NULL) OR attempts < 0 OR repeats < 0 ORDER BY 1",
        "chunk {0} of job {2} is {1}, and its times or counts say otherwise",
        _REPORT,
    ),
    RowCheck(
        "outbound lanes",
        "SELECT o.lane, o.job_id, q.status FROM outbound_lanes o JOIN queue q ON q.id = o.job_id"
        " WHERE q.status NOT IN {OPEN} ORDER BY 1",
        "the job {1} holds the right to send in {0}, although it is {2}: nothing is sent there",
        _RECONCILED,
    ),
    RowCheck(
        "model calls",
        "SELECT c.id, c.job_id, q.status FROM llm_calls c JOIN queue q ON q.id = c.job_id"
        " WHERE c.state = 'sent' AND q.status NOT IN {OPEN} ORDER BY 1",
        "model call {0} is under way, although its job {1} is {2}",
        _REPORT,
    ),
    RowCheck(
        "questions",
        "SELECT n.id, n.job_id, q.status FROM questions n JOIN queue q ON q.id = n.job_id"
        " WHERE n.status = 'open' AND q.status NOT IN {OPEN} ORDER BY 1",
        "question {0} is open, although its job {1} is {2}",
        "Close it with `maestro questions answer {0} no`.",
    ),
    RowCheck(
        "reservations",
        "SELECT r.job_id, r.amount_usd, coalesce(q.status, 'missing') FROM reservations r"
        " LEFT JOIN queue q ON q.id = r.job_id WHERE q.id IS NULL OR q.status NOT IN {OPEN} ORDER BY 1",
        "${1:.4f} are reserved for the job {0}, which is {2}: its budgets seem used up too early",
        "It counts until the end of the day (UTC). " + _REPORT,
    ),
)

_USAGE_KEY = "day, agent_id, client_id, provider, model, account, purpose"
_USAGE_COLUMNS = f"""{_USAGE_KEY}, platform, calls, failures, interrupted, input_tokens, output_tokens, cached_tokens,
known, unknown_cost, estimated, cost_usd, interrupted_cost_usd"""
_ACTUAL_USAGE = """
SELECT substr(u.at, 1, 10) AS day, coalesce(u.agent_id, 0) AS agent_id, coalesce(u.client_id, 0) AS client_id,
u.provider AS provider, u.model AS model, u.account AS account, u.purpose AS purpose,
coalesce(q.platform, '') AS platform, count(*) AS calls,
sum(CASE WHEN u.state = 'failed' THEN 1 ELSE 0 END) AS failures,
sum(CASE WHEN u.state = 'interrupted' THEN 1 ELSE 0 END) AS interrupted,
sum(CASE WHEN u.state <> 'interrupted' THEN u.input_tokens ELSE 0 END) AS input_tokens,
sum(CASE WHEN u.state <> 'interrupted' THEN u.output_tokens ELSE 0 END) AS output_tokens,
sum(CASE WHEN u.state <> 'interrupted' THEN u.cached_tokens ELSE 0 END) AS cached_tokens,
sum(CASE WHEN u.state <> 'interrupted' AND u.cost_usd IS NOT NULL THEN 1 ELSE 0 END) AS known,
sum(CASE WHEN u.cost_usd IS NULL AND (u.state = 'answered' OR u.input_tokens + u.output_tokens > 0) THEN 1 ELSE 0 END)
AS unknown_cost,
sum(CASE WHEN u.state = 'interrupted' AND u.cost_usd IS NOT NULL THEN 1 ELSE 0 END) AS estimated,
sum(CASE WHEN u.state <> 'interrupted' THEN coalesce(u.cost_usd, 0.0) ELSE 0.0 END) AS cost_usd,
sum(CASE WHEN u.state = 'interrupted' THEN coalesce(u.cost_usd, 0.0) ELSE 0.0 END) AS interrupted_cost_usd
FROM usage_log u LEFT JOIN queue q ON q.id = u.job_id"""
_BY_KEY = " GROUP BY 1, 2, 3, 4, 5, 6, 7, 8"

# The platform is left out: it comes from the job, whose row may have been removed since.
_USAGE = f"""
WITH compared AS (
SELECT {_USAGE_KEY}, calls, input_tokens, output_tokens, cost_usd FROM ({_ACTUAL_USAGE}{_BY_KEY}) AS counted
UNION ALL
SELECT {_USAGE_KEY}, -calls, -input_tokens, -output_tokens, -cost_usd FROM usage_days),
differing AS (
SELECT day, sum(calls) AS calls, sum(cost_usd) AS usd FROM compared GROUP BY {_USAGE_KEY}
HAVING sum(calls) <> 0 OR sum(input_tokens) <> 0 OR sum(output_tokens) <> 0 OR abs(sum(cost_usd)) > 0.000001)
SELECT day, sum(abs(calls)), sum(abs(usd)) FROM differing GROUP BY day ORDER BY day"""  # noqa: S608 - constants

_UNINDEXED = """
SELECT f.id FROM memory_facts f LEFT JOIN memory_index_docsize d ON d.id = f.id WHERE d.id IS NULL
UNION ALL
SELECT d.id FROM memory_index_docsize d LEFT JOIN memory_facts f ON f.id = d.id WHERE f.id IS NULL"""


class ReferencedFile(NamedTuple):
    """A file of the media folder that rows name; ``size`` is in bytes, None if no row has it."""

    digest: str
    size: int | None


class RowConsistency:
    """Finds contradictions between the rows of one database, in the snapshot of a connection."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self._sqlite = connection.dialect.name == "sqlite"

    def find_contradictions(self, *, dispatching: bool) -> Iterator[Finding]:
        """Yield all findings; ``dispatching`` means that a process runs that starts claimed jobs."""
        for check in ROW_CHECKS:
            rows = self._read(check.query, soon=self._text_of(self._now + CLAIM_SECONDS))
            yield from _limited(check.name, rows, _Describe(check.problem, check.fix))
        if dispatching:
            claimed = "SELECT id, claimed_at FROM queue WHERE status = 'pending' AND claimed_at < :late ORDER BY 1"
            rows = self._read(claimed, late=self._text_of(self._now - CLAIM_SECONDS))
            problem = "job {0} was claimed at {1} and has not been started"
            yield from _limited(
                "claims", rows, _Describe(problem, "`maestro doctor` says why Temporal starts no jobs.")
            )
        yield from self._find_broken_references()
        yield from self._find_wrong_budgets()
        yield from self._find_wrong_usage()
        yield from self._find_unindexed_facts()
        yield from self._find_late_counters()

    def list_files(self) -> Iterator[ReferencedFile]:
        """Yield each file that rows name, by digest."""
        parts = [
            f"SELECT {column}, {'size' if table in SIZED else 'NULL'} AS size FROM {table}"  # noqa: S608 - constants
            for table, column in MEDIA_COLUMNS
        ]
        listed = f"SELECT digest, max(size) FROM ({' UNION ALL '.join(parts)}) AS named"  # noqa: S608 - constants
        grouped = f"{listed} WHERE digest <> '' GROUP BY digest ORDER BY digest"
        for batch in TableCopier(self._connection).read_batches(grouped):
            for row in batch:
                yield ReferencedFile(*row)

    def list_discarded(self) -> frozenset[str]:
        """Return the paths of files that a removal left to be deleted."""
        return frozenset(path for (path,) in self._read("SELECT path FROM discarded_files"))

    def read_open_jobs(self) -> Mapping[str, tuple[str, int]]:
        """Return the status and the run of each open job."""
        rows = self._read("SELECT id, status, run FROM queue WHERE status IN {OPEN}")
        return {job_id: (status, run) for job_id, status, run in rows}

    def exists_job(self, job_id: str) -> bool:
        """Return whether a job exists, open or ended."""
        return bool(self._read("SELECT 1 FROM queue WHERE id = :id", id=job_id))

    def list_schedules(self) -> Mapping[str, bool]:
        """Return the reference of each heartbeat and cron, and whether Temporal has accepted it."""
        found = "SELECT '{0}-' || id, followed <> '' FROM {1}"
        tables = (("heartbeat", "heartbeat_configs"), ("cron", "cron_jobs"))
        return {ref: bool(sent) for kind, table in tables for ref, sent in self._read(found.format(kind, table))}

    def repair_rows(self, findings: Sequence[Finding]) -> list[str]:
        """Compute the tables anew that follow from others, where findings say so; return a sentence for each."""
        done = []
        for finding in findings:
            repair = self._repairs.get(finding.check) if finding.repairable else None
            if repair is not None:
                done.append(repair(finding.subject))
        return done

    @property
    def _repairs(self) -> Mapping[str, Callable[[str], str]]:
        return {"usage": self._count_day, "memory index": self._index_facts, "counters": self._raise_counter}

    def _find_broken_references(self) -> Iterator[Finding]:
        inspector = inspect(self._connection)
        for table in inspector.get_table_names():
            for key in inspector.get_foreign_keys(table):
                (column,), (target,) = key["constrained_columns"], key["referred_columns"]
                orphans = (
                    f'SELECT c."{column}", count(*) FROM "{table}" c LEFT JOIN "{key["referred_table"]}" p'  # noqa: S608
                    f' ON p."{target}" = c."{column}" WHERE c."{column}" IS NOT NULL AND p."{target}" IS NULL'
                    " GROUP BY 1 ORDER BY 1"
                )
                problem = f"{{1}} rows of {table} name {{0}} of {key['referred_table']}, which does not exist"
                fix = "Restore a backup, or delete these rows. " + _REPORT
                rows = [(f"{table}.{column} {value}", value, count) for value, count in self._read(orphans)]
                named = _Describe(problem.replace("{1}", "{2}").replace("{0}", "{1}"), fix)
                yield from _limited("references", rows, named)

    def _find_wrong_budgets(self) -> Iterator[Finding]:
        """Compare what each budget has reserved with the reservations of calls under way."""
        reserved: Counter[tuple[str, str, str]] = Counter()
        for day, scopes, amount in self._read("SELECT day, scopes, amount_usd FROM reservations"):
            for scope, _, subject in (word.partition(":") for word in scopes.split()):
                reserved[str(day), scope, subject] += amount
        kept = self._read("SELECT day, scope, subject, reserved_usd FROM spending WHERE reserved_usd <> 0")
        for day, scope, subject, amount in kept:
            reserved[str(day), scope, subject] -= amount
        wrong = [(*key, amount) for key, amount in sorted(reserved.items()) if abs(amount) > DUST * 10]
        rows = [
            (f"{day} {scope}:{subject}", day, f"{scope} {subject}".strip(), amount)
            for day, scope, subject, amount in wrong
        ]
        problem = "the budget of {2} on {1} has ${3:.4f} less reserved than its calls under way need"
        yield from _limited("budgets", rows, _Describe(problem, "It counts until the end of the day (UTC). " + _REPORT))

    def _find_wrong_usage(self) -> Iterator[Finding]:
        problem = "the sums of {0} differ from its model calls, by {1} calls and ${2:.4f}"
        fix = "`maestro fsck --repair` computes the sums of that day again."
        yield from _limited("usage", self._read(_USAGE), _Describe(problem, fix, repairable=True))

    def _find_unindexed_facts(self) -> Iterator[Finding]:
        """Find facts that SQLite's full-text index lacks; PostgreSQL keeps its index itself."""
        missing = len(self._read(_UNINDEXED)) if self._sqlite else 0
        if missing:
            problem = f"{missing} facts are missing in the index of memory_facts, or are removed and still in it"
            fix = "`maestro fsck --repair` builds the index again."
            yield Finding(check="memory index", subject="memory_index", problem=problem, fix=fix, repairable=True)

    def _find_late_counters(self) -> Iterator[Finding]:
        """Find tables whose next id may already belong to a row, as after rows were copied without their counters."""
        fix = "`maestro fsck --repair` moves the counter."
        for table, highest, counter in TableCopier(self._connection).find_late_counters():
            problem = f"the next id of {table} is after {counter}, and there is a row {highest}"
            yield Finding(check="counters", subject=table, problem=problem, fix=fix, repairable=True)

    def _count_day(self, day: str) -> str:
        self._connection.execute(text("DELETE FROM usage_days WHERE day = :day"), {"day": day})
        counted = f"{_ACTUAL_USAGE} WHERE substr(u.at, 1, 10) = :day{_BY_KEY}"
        self._connection.execute(text(f"INSERT INTO usage_days ({_USAGE_COLUMNS}) {counted}"), {"day": day})
        return f"computed the usage of {day} again"

    def _index_facts(self, index: str) -> str:
        self._connection.execute(text(f"INSERT INTO {index} ({index}) VALUES ('rebuild')"))  # noqa: S608 - a constant
        return "built the index of the facts again"

    def _raise_counter(self, table: str) -> str:
        TableCopier(self._connection).raise_counters({table: 0})
        return f"moved the counter of {table}"

    def _read(self, query: str, **values: object) -> Sequence[Any]:
        used = {name: value for name, value in values.items() if f":{name}" in query}
        return self._connection.execute(text(query.replace("{OPEN}", _OPEN)), used).all()

    @staticmethod
    def _text_of(moment: datetime) -> str:
        """Return a time as columns contain it."""
        return moment.astimezone(UTC).isoformat(timespec="microseconds")


class _Describe(NamedTuple):
    """The texts of a kind of finding, with a place for each column of a row."""

    problem: str
    fix: str
    repairable: bool = False


def _limited(check: str, rows: Sequence[Any], texts: _Describe) -> Iterator[Finding]:
    """Yield a finding for each of the first rows, and one that counts the others."""
    for row in rows[:MOST_NAMED]:
        yield Finding(
            check=check,
            subject=str(row[0]),
            problem=texts.problem.format(*row),
            fix=texts.fix.format(*row),
            repairable=texts.repairable,
        )
    if len(rows) > MOST_NAMED:
        more = f"{len(rows) - MOST_NAMED} more of this kind"
        yield Finding(check=check, subject="more", problem=more, fix="See above.")
