"""What an episode left behind, read from outside: sockets, platforms, the log of the model, and rows of the store."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.crashing import notes_of
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import LLMServer, Recorded
from tests.torture.lanes import ORDERED_BY_PLATFORM, UNORDERED, WAITS_FOR_AGENT, WITHOUT_KEYS, Clients, Correspondent
from tests.torture.ledger import Call, LaneTrace, Trace
from tests.torture.plan import Kind, Message, Plan

WORD = re.compile(r"\w+")
STRAY = 80
"""The characters of a request that are shown when it belongs to no message."""
ASK, TASK, REPORT = "ask", "task", "report"
"""The parts of the work on a message: itself, the task that an agent passed on, and its result."""
LEFT = ("reservations", "drafts", "outbound_lanes")
"""Tables that are empty when nothing is being done."""


def words_of(client: Correspondent) -> list[str]:
    """Return everything that arrived at a client, word by word, in order, repeats included."""
    return [word for text in client.texts() for word in WORD.findall(text)]


def task_of(message: Message) -> str:
    """Return the task that an agent passes on to another one."""
    return f"task of {message.id} now"


def result_of(message: Message) -> str:
    """Return what the other agent answers."""
    return f"result of {message.id} found"


def script(llm: LLMServer, message: Message) -> None:
    """Let the model answer a message, and whatever comes of it."""
    first, *others = message.marks
    if message.kind is Kind.DELEGATED:
        passed_on = f"{first} is passed on. [DELEGATE:bob wait]{task_of(message)}[/DELEGATE]"
        llm.script(match=message.id, reply=passed_on, delay=message.delay)
        llm.script(match=task_of(message), reply=result_of(message), delay=message.delay)
        llm.script(match=result_of(message), reply=f"{others[0]} is the result.", delay=message.delay)
        return
    long = " ".join(f"{mark} jumps over the lazy dog." for mark in message.marks)
    slow = 0.03 if message.kind is Kind.STREAMED else 0.0
    llm.script(match=message.id, reply=long, delay=message.delay, slow=slow)
    if message.kind is Kind.TOOL:
        calls = (("note", f'{{"text": "{message.id}"}}'),)
        llm.script(match=message.id, calls=calls, rounds=0, delay=message.delay)


@dataclass
class Findings:
    """The rows of an episode."""

    plan: Plan
    evidence: Evidence
    llm: LLMServer
    roots: dict[str, list[Row]] = field(default_factory=dict)
    """The jobs that each message began, by its id, in the order in which they were accepted."""

    @classmethod
    def read(cls, plan: Plan, evidence: Evidence, llm: LLMServer) -> "Findings":
        """Read which job each message began."""
        findings = cls(plan, evidence, llm, {message.id: [] for message in plan.messages})
        found = evidence.rows(
            "SELECT inbox.content AS content, inbox.id AS inbox_row, queue.* FROM inbox "
            "JOIN queue ON queue.id = inbox.job_id WHERE inbox.content LIKE ? ORDER BY inbox.id",
            f"e{plan.number}m%",
        )
        for row in found:
            findings.roots.setdefault(str(row["content"]).split()[0], []).append(row)
        for message in plan.messages:
            if message.lane in BEGUN_BY:
                findings.roots[message.id] = evidence.rows(BEGUN_BY[message.lane], message.id)
        return findings

    def trees(self) -> dict[str, list[tuple[str, Row]]]:
        """Return the jobs of each message, delegations included, with the part of the work that each is."""
        parents = {row["id"]: message_id for message_id, rows in self.roots.items() for row in rows}
        trees = {message_id: [(ASK, row) for row in rows] for message_id, rows in self.roots.items()}
        if parents:
            for row in self._of("SELECT * FROM queue WHERE parent_id IN ({}) ORDER BY created_at", parents):
                trees[parents[row["parent_id"]]].append((TASK if row["task"] else REPORT, row))
        return trees

    def missing(self, clients: Clients) -> list[str]:
        """Return what is not there yet: marks that did not arrive, and jobs that have not ended."""
        words = {word for one in clients.lanes.values() for word in words_of(one)}
        marks = [mark for message in self.plan.messages for mark in message.marks if mark not in words]
        jobs = [row for tree in self.trees().values() for _, row in tree if row["completed_at"] is None]
        return marks + [f"{row['id']} {row['status']}" for row in jobs]

    def lanes(self, clients: Clients) -> list[LaneTrace]:
        """Return everything by lane."""
        traces = self._traces()
        asked = [message_id for recorded in self.llm.requests if (message_id := self._message_of(recorded))]
        return [
            LaneTrace(
                messages=self._in_order(name),
                received_words=words_of(clients.lanes[name]),
                traces=traces,
                model_call_order=asked,
                ordered=name not in UNORDERED,
                first_marks=name in WAITS_FOR_AGENT,
                platform_lacks_keys=name in WITHOUT_KEYS,
            )
            for name in self.plan.lanes
        ]

    def left_open(self) -> list[str]:
        """Return the rows of tables that are empty when nothing is being done."""
        return [f"{table}: {row}" for table in LEFT for row in self.evidence.rows(f"SELECT * FROM {table}")]

    def stray_requests(self) -> list[str]:
        """Return the beginnings of requests to the model that belong to no message of the episode."""
        return [one.last_user[:STRAY] for one in self.llm.requests if not self._message_of(one)]

    def _traces(self) -> dict[str, Trace]:
        trees = self.trees()
        owner = {row["id"]: (message_id, part) for message_id, tree in trees.items() for part, row in tree}
        calls = {message_id: Counter[tuple[str, int, str]]() for message_id in trees}
        for row in self._of("SELECT job_id, number, state FROM llm_calls WHERE job_id IN ({})", owner):
            message_id, part = owner[row["job_id"]]
            calls[message_id][part, row["number"], row["state"]] += 1
        requests: dict[str, dict[Call, list[float]]] = {message_id: {} for message_id in trees}
        for recorded in self.llm.requests:
            if (message_id := self._message_of(recorded)) in requests:
                call = _part_of(recorded, message_id), recorded.rounds + 1
                requests[message_id].setdefault(call, []).append(recorded.received)
        repeats = self._sums(owner, "deliveries", "sum(repeats)")
        steps, waits = (self._sums(owner, "job_steps", IN_STATE.format(state)) for state in ("running", "waiting"))
        tool_calls, effects = self._tool_calls(owner), self._effects()
        return {
            message_id: Trace(
                jobs=len(self.roots[message_id]),
                calls=calls[message_id],
                requests=requests[message_id],
                repeats=repeats[message_id],
                tool_calls=tuple(tool_calls.get(message_id, ())),
                effects=effects[message_id],
                open=(
                    *(f"job {row['id']} is {row['status']}" for _, row in tree if row["status"] != "completed"),
                    *(["running steps"] if steps[message_id] else []),
                    *(f"call {call} is sent" for call in calls[message_id] if call[-1] == "sent"),
                ),
                waits=waits[message_id],
            )
            for message_id, tree in trees.items()
        }

    def _effects(self) -> Counter[str]:
        notes = notes_of(self.evidence.path.parent)
        return Counter(notes.read_text().split() if notes.exists() else ())

    def _tool_calls(self, owner: dict[str, tuple[str, str]]) -> dict[str, list[str]]:
        states: dict[str, list[str]] = {}
        for row in self._of("SELECT job_id, state FROM tool_calls WHERE job_id IN ({})", owner):
            states.setdefault(owner[row["job_id"]][0], []).append(row["state"])
        return states

    def _sums(self, owner: dict[str, tuple[str, str]], table: str, what: str) -> Counter[str]:
        sums = Counter[str]()
        sql = f"SELECT job_id, {what} AS n FROM {table} WHERE job_id IN ({{}}) GROUP BY job_id"
        for row in self._of(sql, owner):
            sums[owner[row["job_id"]][0]] += int(row["n"] or 0)
        return sums

    def _of(self, sql: str, ids: Iterable[str]) -> list[Row]:
        values = list(ids)
        return self.evidence.rows(sql.format(", ".join("?" * len(values))), *values) if values else []

    def _in_order(self, lane: str) -> list[Message]:
        """Return the messages of a lane as its platform orders them, or as they were accepted."""
        messages = self.plan.lane(lane)
        if lane in ORDERED_BY_PLATFORM:
            return messages
        accepted = {message_id: rows[0].get("inbox_row") for message_id, rows in self.roots.items() if rows}
        return sorted(messages, key=lambda one: accepted.get(one.id) or 0)

    def _message_of(self, recorded: Recorded) -> str:
        found = MESSAGE.search(recorded.last_user)
        return found[0] if found and found[0] in self.roots else ""


BEGUN_BY = {
    "webhook": "SELECT queue.* FROM queue JOIN webhooks ON webhooks.id = queue.webhook_id WHERE webhooks.path = ?",
    "schedule": "SELECT queue.* FROM queue JOIN cron_jobs ON queue.schedule = 'cron-' || cron_jobs.id "
    "WHERE cron_jobs.name = ?",
}
"""The jobs of messages that are not in the inbox, by lane."""
IN_STATE = "sum(CASE WHEN state = '{}' THEN 1 ELSE 0 END)"
MESSAGE = re.compile(r"\be\d+m\d+x")


def _part_of(recorded: Recorded, message_id: str) -> str:
    if f"result of {message_id}" in recorded.last_user:
        return REPORT
    return TASK if f"task of {message_id}" in recorded.last_user else ASK
