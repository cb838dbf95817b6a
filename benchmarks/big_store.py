"""A store as it is after years: half a million jobs, their messages and conversations, agents and what they know.

One of everything is made as the product makes it; the others are copies of it, made inside of SQLite, in which only
what tells rows apart is different. So a new column needs no change here.
"""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from maestro.bootstrap.skill_folder import SHIPPED
from maestro.domain.agents.agent import Agent, AgentChannel
from maestro.domain.context.composition import Composition
from maestro.domain.conversations.compaction import Compaction
from maestro.domain.conversations.conversation import Said
from maestro.domain.jobs.job import Job, JobStatus, StepRef
from maestro.domain.llm.prompts import Role
from maestro.domain.llm.tokens import estimate
from maestro.domain.memory.facts import Fact
from maestro.domain.memory.memory import FactCategory
from maestro.domain.messages import Address, IncomingMessage
from maestro.domain.people.owners import PersonId
from maestro.domain.skills.library import FoundFile
from maestro.store.store import Store
from maestro.store.transaction import Transaction

MODEL = "anthropic/claude-sonnet-4-6"
PLATFORM = "web"
DIRECT, MENTIONED = 8, 9
"""Of ten conversations one is a direct message to the conductor, one of those that mention their agent; the others are
in channels that are bound."""

QUESTION = "Could you look at the figures of last week once more, and say what you make of the dip on Thursday morning?"
SUBJECTS = ("Incidents", "Questions of the board", "Invoices", "Requests of the auditors", "Holidays of the team")
ANSWER = (
    "The dip comes from the maintenance window: the exporter was paused from 06:10 to 07:25, and nothing was lost. " * 2
)
PROMPT = (
    "You look after the figures of one team. Answer briefly, name your sources, and ask when a question is unclear. "
)


@dataclass(frozen=True)
class Size:
    """How many there are; each conversation has as many questions as ``rounds``, and as many answers.

    ``sticky`` is how many sticky facts each agent has besides the ``facts`` of all.
    """

    conversations: int = 50_000
    rounds: int = 10
    agents: int = 300
    facts: int = 20_000
    sticky: int = 5
    skills: int = 50

    @property
    def jobs(self) -> int:
        """Return how many jobs there are, one for each question."""
        return self.conversations * self.rounds

    @property
    def messages(self) -> int:
        """Return how many messages there are, answers included."""
        return 2 * self.jobs

    @property
    def compactions(self) -> int:
        """Return how many conversations were compacted; see ``_COMPACTED``."""
        return self.conversations // 10

    def agent_of(self, conversation: int) -> int:
        """Return the id of the agent of a conversation; see ``_AGENT``."""
        return 1 if conversation % 10 == DIRECT else 2 + conversation % (self.agents - 1)


def build(path: Path, size: Size) -> None:
    """Make the store."""
    store = Store.open(path)
    with store.begin() as tx:
        _agents(tx, size)
        _skills(tx, size)
        _one_of_everything(tx)
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=OFF")
        database.execute("PRAGMA synchronous=OFF")
        database.execute("BEGIN")
        _multiply(database, size)
        database.execute("COMMIT")


def channel(conversation: int) -> str:
    """Return the channel of a conversation."""
    return f"channel-{conversation}"


def _agents(tx: Transaction, size: Size) -> None:
    for number in range(1, size.agents + 1):
        role = "conductor" if number == 1 else "assistant"
        tx.agents.put(
            Agent(
                slug=f"agent-{number}",
                name=f"Agent {number}",
                role=role,
                description="looks after the figures of one team",
                system_prompt=PROMPT * 5,
                model=MODEL,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )
        for key in ("last-topic", "open-question", "mood"):
            tx.memory.set_state(number, key, f"something about {key}")
        sticky = [
            Fact(FactCategory.STICKY, f"{subject} come before everything else") for subject in SUBJECTS[: size.sticky]
        ]
        tx.memory.learn(number, sticky, conversation_id=None)


def _skills(tx: Transaction, size: Size) -> None:
    shipped = sorted(SHIPPED.glob("*.md"))
    for path in shipped:
        tx.skills.put(FoundFile.read(path.name, path.read_bytes(), shipped=True))
    for number in range(size.skills - len(shipped)):
        triggers = f"{{keywords: [topic-{number}], patterns: [no-{number}]}}"
        text = f"---\nslug: skill-{number}\nname: Skill {number}\ntriggers: {triggers}\n---\n{PROMPT * 10}"
        tx.skills.put(FoundFile.read(f"skill-{number}.md", text.encode(), shipped=False))


def _one_of_everything(tx: Transaction) -> None:
    """Make the first question and its answer, with every row that a finished job leaves where the next one looks."""
    address, agent_id = Address(platform=PLATFORM, channel=channel(1)), 3
    tx.agents.bind(AgentChannel(agent_id=agent_id, **address.model_dump(exclude={"thread"})))
    tx.pairings.let_in(PersonId(PLATFORM, "user-1"), "Grace", "benchmark")
    fact = Fact(FactCategory.PROJECT_CONTEXT, "the figures of the first team are due on Mondays")
    tx.memory.learn(agent_id, [fact], conversation_id=None)
    said = IncomingMessage(
        id="m-1", address=address, user_id="user-1", user_name="Grace", content=QUESTION, sent_at=datetime.now(UTC)
    )
    job_id = _job_id(1)
    row = tx.inbox.add(said, job_id)
    conversation = tx.conversations.open(agent_id, address, ("user-1", "Grace"), keyed_by_user=False, closed_by=None)
    tx.jobs.add(
        Job(
            id=job_id,
            lane=f"{PLATFORM}/default/{channel(1)}/",
            inbox_id=row.id,
            agent_id=agent_id,
            conversation_id=conversation.id,
            status=JobStatus.COMPLETED,
            created_at=tx.now,
            **address.model_dump(),
        )
    )
    for role, text, inbox_id in ((Role.USER, QUESTION, row.id), (Role.ASSISTANT, ANSWER, None)):
        tx.conversations.add(
            Said(
                conversation_id=conversation.id or 0,
                role=role,
                content=text,
                token_estimate=estimate(text),
                inbox_id=inbox_id,
                job_id=job_id,
                created_at=tx.now,
            )
        )
    tx.compactions.add(
        Compaction(
            conversation_id=conversation.id or 0,
            agent_id=agent_id,
            summary=ANSWER * 3,
            messages_before=30,
            messages_after=10,
            tokens_saved=20 * estimate(ANSWER),
            created_at=tx.now,
        )
    )
    tx.prompts.add(job_id, Composition(messages=(), layers=(), facts=()))
    tx.steps.start(StepRef(job_id=job_id, step="context"), "build_context", 1)


def _job_id(number: int) -> str:
    return f"message-{number:026}"


# Of job number n: its conversation, and of a conversation c: its agent and channel.
_CONVERSATION = "((n - 1) % :conversations + 1)"
_AGENT = "(CASE {c} % 10 WHEN 8 THEN 1 ELSE 2 + {c} % (:agents - 1) END)"
_CHANNEL = "('channel-' || {c})"
_COMPACTED = "n % 10 = 1"
_JOB = "printf('message-%026d', n)"


def _multiply(database: sqlite3.Connection, size: Size) -> None:
    """Make copies until there are enough; those of a conversation are spread over the file, as they come in."""
    numbers = vars(size) | {"jobs": size.jobs, "tokens": size.rounds * (estimate(QUESTION) + estimate(ANSWER))}
    database.execute("CREATE TEMP TABLE numbers (n INTEGER PRIMARY KEY)")
    database.execute(
        "INSERT INTO numbers WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < :most)"
        " SELECT n FROM up",
        {"most": max(size.jobs, size.facts)},
    )

    def copies(table: str, which: str, values: Mapping[str, str], where: str = "1") -> None:
        names = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
        chosen = ", ".join(values.get(name, "NULL" if name == "id" else f'one."{name}"') for name in names)
        listed = ", ".join(f'"{name}"' for name in names)
        one = f"(SELECT * FROM {table} WHERE {where} LIMIT 1) AS one"
        statement = f"INSERT INTO {table} ({listed}) SELECT {chosen} FROM numbers, {one} WHERE {which} ORDER BY n"
        database.execute(statement, numbers)

    def of(expression: str, conversation: str) -> str:
        return expression.format(c=conversation)

    conversations = {
        "id": "n",
        "agent_id": of(_AGENT, "n"),
        "channel": of(_CHANNEL, "n"),
        "key": f"{of(_AGENT, 'n')} || '/web/default/channel-' || n || '//'",
        "user_id": "'user-' || n",
        "message_count": "2 * :rounds",
        "total_tokens_estimate": ":tokens",
    }
    jobs = {"job_id": _JOB, "conversation_id": _CONVERSATION}
    place = {"channel": of(_CHANNEL, _CONVERSATION), "user_id": f"'user-' || {_CONVERSATION}"}
    copies("conversations", "n BETWEEN 2 AND :conversations", conversations)
    database.execute(
        "UPDATE conversations SET message_count = 2 * :rounds, total_tokens_estimate = :tokens WHERE id = 1", numbers
    )
    bound = "n BETWEEN 2 AND :conversations AND n % 10 < 8"
    copies("agent_channels", bound, {"agent_id": of(_AGENT, "n"), "channel": of(_CHANNEL, "n")})
    copies("known_people", "n BETWEEN 2 AND :conversations AND n % 10 = 8", {"user_id": "'user-' || n"})
    copies("inbox", "n BETWEEN 2 AND :jobs", {**jobs, **place, "id": "n", "message_id": "'m-' || n"})
    row = {"id": _JOB, "inbox_id": "n", "turn": "n", "conversation_id": _CONVERSATION, "answer_id": "2 * n"}
    lane = {"lane": "'web/default/channel-' || " + _CONVERSATION + " || '/'", "agent_id": of(_AGENT, _CONVERSATION)}
    copies("queue", "n BETWEEN 2 AND :jobs", {**row, **lane, "channel": place["channel"]})
    copies("messages", "n BETWEEN 2 AND :jobs", {**jobs, "id": "2 * n - 1", "inbox_id": "n"}, "role = 'user'")
    copies("messages", "n BETWEEN 2 AND :jobs", {**jobs, "id": "2 * n"}, "role = 'assistant'")
    for table in ("job_steps", "prompts"):
        copies(table, "n BETWEEN 2 AND :jobs", jobs)
    facts = {"agent_id": "1 + n % :agents", "content": "one.content || n"}
    copies("memory_facts", "n BETWEEN 2 AND :facts", facts, "category = 'project_context'")
    compacted = {"conversation_id": "n", "agent_id": of(_AGENT, "n")}
    copies("compactions", f"n BETWEEN 2 AND :conversations AND {_COMPACTED}", compacted)
