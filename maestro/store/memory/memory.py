"""Queries for the memory of agents: facts with a full-text index, and states (keys with values)."""

from collections.abc import Mapping, Sequence

from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    bindparam,
    column,
    delete,
    func,
    text,
    true,
    tuple_,
    union_all,
    update,
)
from sqlalchemy import select as columns
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from maestro.domain.memory.likeness import index_text, key_lengths, likeness_key, same_fact, search_terms, similar_facts
from maestro.domain.memory.memory import (
    COUNTED,
    EXTRACTED_CONFIDENCE,
    FRESH,
    MAX_STATES,
    Fact,
    FactCategory,
    FactRank,
    MemoryFact,
    MemoryState,
    RecalledFact,
    confirmed_confidence,
    fact_line,
    rank_facts,
    state_problem,
)
from maestro.domain.texts import storable_text
from maestro.store.cache import cached_by_version
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import PreparedStatement, is_in_list, is_one_of, write_json_list

INDEX = "memory_index"

SHADOWS = frozenset({INDEX, *(f"{INDEX}_{part}" for part in ("config", "data", "docsize", "idx"))})
"""The tables that SQLite's full-text index (FTS5) maintains; they have no table class."""

SHORTEST_BEGINNING = 3
"""The fewest letters of a search word that also match as the beginning of a word; one fewer outside ASCII."""

CANDIDATES = 200
"""The most facts of a scope whose current confidence is computed, the highest stored confidence first."""

MOST_STICKY = 200
"""The most sticky facts that are read for a prompt, because a model may store thousands of them."""


def facts_with_words(words: Sequence[str], agent_id: int, *, sqlite: bool) -> SelectOfScalar[MemoryFact]:
    """Return the query for an agent's facts that contain any of these words, best match first."""
    matches = _SQLITE_MATCHES if sqlite else _POSTGRESQL_MATCHES
    terms = _fts5_terms(words, agent_id) if sqlite else _tsquery_terms(words)
    found = text(matches).bindparams(terms=terms).columns(column("id", Integer), column("rank", Float)).subquery()
    return (
        select(MemoryFact)
        .join(found, found.c.id == col(MemoryFact.id))
        .where(MemoryFact.agent_id == agent_id)
        .order_by(
            found.c.rank * (1 + col(MemoryFact.confidence)),
            col(MemoryFact.confidence).desc(),
            col(MemoryFact.id).desc(),
        )
    )


# ``bm25`` is smaller for a better match; the weight 0 leaves the agent's column out of the rank.
_SQLITE_MATCHES = """
SELECT rowid AS id, bm25(memory_index, 0.0, 1.0) AS rank FROM memory_index WHERE memory_index MATCH :terms
"""
_POSTGRESQL_MATCHES = """
SELECT id, -ts_rank(array_to_tsvector(string_to_array(words, ' ')), CAST(:terms AS tsquery)) AS rank FROM memory_facts
WHERE array_to_tsvector(string_to_array(words, ' ')) @@ CAST(:terms AS tsquery)
"""


def _fts5_terms(words: Sequence[str], agent_id: int) -> str:
    """Return an FTS5 MATCH expression for words, each in quotes, so that none counts as syntax."""
    terms = " OR ".join(term for word in words for term in _fts5_word(word))
    return f'agent_id : "{agent_id}" AND words : ({terms})'


def _fts5_word(word: str) -> Sequence[str]:
    quoted = f'"{index_text(word)}"'
    return (quoted, f"{quoted}*") if _may_begin(word) else (quoted,)


def _tsquery_terms(words: Sequence[str]) -> str:
    """Return words as a ``tsquery``, with each word quoted; a term of two characters matches both in any order."""
    indexed = [[part.replace("\\", "").replace("'", "''") for part in index_text(word).split()] for word in words]
    terms = (
        " & ".join(f"'{part}':*" if _may_begin(word) else f"'{part}'" for part in parts)
        for word, parts in zip(words, indexed, strict=True)
        if parts
    )
    return " | ".join(f"({term})" for term in terms)


def _may_begin(word: str) -> bool:
    """Return whether a search term also matches words that begin with it."""
    return " " not in word and len(word) >= (SHORTEST_BEGINNING if word.isascii() else SHORTEST_BEGINNING - 1)


class States(Repository):
    """Queries for the states of agents; in a memory scope, the scope's value of a key hides the global value."""

    _SEEN = PreparedStatement(
        select(MemoryState)
        .where(MemoryState.agent_id == bindparam("of_agent"), is_one_of(col(MemoryState.place), ("", bindparam("at"))))
        .order_by(MemoryState.place)
    )

    @cached_by_version("memory_state")
    def read_states(self, agent_id: int, memory_scope: str = "") -> Sequence[MemoryState]:
        """Return a memory scope's states, and global states it does not override, as read-only rows by key."""
        rows = self._read_models(self._SEEN, MemoryState, of_agent=agent_id, at=memory_scope)
        seen = {state.key: state for state in rows}
        return [seen[key] for key in sorted(seen)]

    def list_states_of_agent(self, agent_id: int, limit: int, after: int | None = None) -> Sequence[MemoryState]:
        """Return the states of all scopes, sorted by key and scope, after the state with the id ``after``."""
        query = select(MemoryState).where(MemoryState.agent_id == agent_id)
        last = self._session.get(MemoryState, after) if after is not None else None
        if last is not None:
            query = query.where(tuple_(MemoryState.key, MemoryState.place) > (last.key, last.place))
        return self._find_all(query.order_by(MemoryState.key, MemoryState.place).limit(limit))

    def find_state(self, agent_id: int, key: str, memory_scope: str = "") -> MemoryState | None:
        """Return the state of a key in this scope, without regard to global states; None without one."""
        return self._session.exec(
            select(MemoryState).where(*_scope_condition(agent_id, memory_scope), MemoryState.key == key)
        ).one_or_none()

    def set_state(self, agent_id: int, key: str, value: str, memory_scope: str = "") -> str:
        """Set the value of a key; an empty value deletes the key.

        Returns the reason why the value is refused, for the caller to show; empty if the value is stored.
        """
        key, value = storable_text(key.strip()), storable_text(value.strip())
        problem = state_problem(key, value)
        if problem:
            return problem
        state = self.find_state(agent_id, key, memory_scope)
        if not value:
            self.delete_state(agent_id, key, memory_scope)
            return ""
        if state is None and self._count_rows(*_scope_condition(agent_id, memory_scope)) >= MAX_STATES:
            return f"{MAX_STATES} keys are kept already; forget one first"
        state = state or MemoryState(agent_id=agent_id, place=memory_scope, key=key, value="", updated_at=self._now)
        state.value, state.updated_at = value, self._now
        self._save_objects(state)
        return ""

    def delete_state(self, agent_id: int, key: str, memory_scope: str = "") -> bool:
        """Delete a key in this scope only; return false if the key had no value."""
        states = delete(MemoryState).where(*_scope_condition(agent_id, memory_scope), col(MemoryState.key) == key)
        return self._session.exec(states).rowcount > 0


def _scope_condition(agent_id: int, memory_scope: str) -> tuple[ColumnElement[bool], ...]:
    return col(MemoryState.agent_id) == agent_id, col(MemoryState.place) == memory_scope


class Memory(States):
    """Queries for the facts and states of agents.

    ``place`` is the memory scope, empty for facts of all scopes. A query for one scope also returns facts of all
    scopes. Queries for other scopes do not return the facts of one scope.
    """

    _LAST_USED = func.coalesce(MemoryFact.last_accessed, MemoryFact.created_at)
    _COUNTED = (col(MemoryFact.last_accessed) > bindparam("counted_since")) & (col(MemoryFact.access_count) > 0)
    _TOLD_OF = (
        *(getattr(MemoryFact, name) for name in RecalledFact._fields if name != "is_counted"),
        _COUNTED.label("is_counted"),
    )
    _STICKY = (
        columns(*_TOLD_OF, true().label("is_fresh"), col(MemoryFact.confidence), _LAST_USED.label("last_used"))
        .where(
            col(MemoryFact.agent_id) == bindparam("of_agent"),
            col(MemoryFact.category) == FactCategory.STICKY,
            is_one_of(col(MemoryFact.place), ("", bindparam("at"))),
        )
        .order_by(col(MemoryFact.confidence).desc(), _LAST_USED.desc(), col(MemoryFact.id).desc())
        .limit(MOST_STICKY)
    )
    _WRITTEN = (
        columns(*_TOLD_OF, col(MemoryFact.confidence), _LAST_USED.label("last_used"))
        .where(col(MemoryFact.agent_id) == bindparam("of_agent"), col(MemoryFact.category) != FactCategory.STICKY)
        .order_by(col(MemoryFact.confidence).desc(), _LAST_USED.desc(), col(MemoryFact.id).desc())
        .limit(bindparam("at_most"))
    )
    _EVERYWHERE = _WRITTEN.where(col(MemoryFact.place) == "")
    _HERE = _WRITTEN.where(col(MemoryFact.place) == bindparam("at"), bindparam("at") != "")
    _OTHERS = union_all(columns(_EVERYWHERE.subquery()), columns(_HERE.subquery())).subquery()
    _STANDINGS = PreparedStatement(columns(_OTHERS.c.id, _OTHERS.c.confidence, _OTHERS.c.last_used))
    _SUREST_WRITTEN = (
        columns(
            *(_OTHERS.c.id, _OTHERS.c.category, _OTHERS.c.content, _OTHERS.c.is_counted),
            (_OTHERS.c.last_used > bindparam("fresh_since")).label("is_fresh"),
            _OTHERS.c.confidence,
            _OTHERS.c.last_used,
        )
        .order_by(_OTHERS.c.confidence.desc(), _OTHERS.c.last_used.desc(), _OTHERS.c.id.desc())
        .limit(bindparam("at_most"))
    )
    _BOTH = union_all(columns(_STICKY.subquery()), columns(_SUREST_WRITTEN.subquery())).subquery()
    _BEST = PreparedStatement(
        columns(_BOTH.c.id, _BOTH.c.category, _BOTH.c.content, _BOTH.c.is_counted, _BOTH.c.is_fresh).order_by(
            _BOTH.c.category != FactCategory.STICKY,
            _BOTH.c.confidence.desc(),
            _BOTH.c.last_used.desc(),
            _BOTH.c.id.desc(),
        )
    )
    _LISTED = is_in_list(col(MemoryFact.id), "ids")
    _OBJECTS = select(MemoryFact).where(_LISTED)
    _BY_ID = PreparedStatement(columns(*_TOLD_OF).where(_LISTED))
    _TOLD = PreparedStatement(
        update(MemoryFact)
        .where(_LISTED)
        .values(last_accessed=bindparam("at"), access_count=col(MemoryFact.access_count) + 1)
    )
    _KEYS = PreparedStatement(
        select(MemoryFact.id, MemoryFact.likeness).where(
            MemoryFact.agent_id == bindparam("of_agent"),
            is_one_of(col(MemoryFact.place), ("", bindparam("at"))),
            MemoryFact.category == bindparam("about"),
            func.length(MemoryFact.likeness).between(bindparam("least"), bindparam("most")),
        )
    )

    def learn_facts(
        self,
        agent_id: int,
        facts: Sequence[Fact],
        *,
        conversation_id: int | None,
        memory_scope: str = "",
        confidence: float = EXTRACTED_CONFIDENCE,
    ) -> int:
        """Store the facts that an agent does not know yet; return the number of stored facts.

        A fact that repeats a stored fact of the same category only raises the confidence of the stored fact. The stored
        fact is of the same scope or of all scopes (docs/decisions.md: duplicate facts).
        """
        new = 0
        keys = {
            category: self._likeness_keys(agent_id, memory_scope, [fact for fact in facts if fact.category is category])
            for category in {fact.category for fact in facts}
        }
        for category, content in facts:
            known = self._find_same(content, keys[category])
            if known is not None:
                known.confidence = confirmed_confidence(known.confidence, confidence)
                known.last_accessed = self._now
                continue
            stored = self.save_fact(
                MemoryFact(
                    agent_id=agent_id,
                    category=category,
                    content=content,
                    place=memory_scope,
                    confidence=confidence,
                    source_conversation_id=conversation_id,
                    created_at=self._now,
                )
            )
            keys[category][stored.id or 0] = stored.likeness
            new += 1
        self._session.flush()
        return new

    def find_best_facts(self, agent_id: int, other_count: int, memory_scope: str = "") -> list[RecalledFact]:
        """Return all sticky facts, then ``other_count`` other facts by current confidence, then by last use."""
        of = {"of_agent": agent_id, "at": memory_scope, "counted_since": self._now - COUNTED}
        sticky: list[RecalledFact] = []
        written: list[tuple[RecalledFact, bool]] = []
        for *values, is_fresh in self._read_rows(self._BEST, **of, at_most=other_count, fresh_since=self._now - FRESH):
            fact = RecalledFact._make(values)
            if fact.category is FactCategory.STICKY:
                sticky.append(fact)
            else:
                written.append((fact, is_fresh))
        return [*sticky, *self._find_best_others(written, other_count, of)]

    def search_facts(self, agent_id: int, query: str, limit: int, memory_scope: str = "") -> Sequence[MemoryFact]:
        """Return the facts that match the text of a user or a model, best match first.

        A whole word counts more than the beginning of a word, a rare word more than a common one. Confidence also
        counts. For a text without words, the facts with the highest confidence are returned.
        """
        words = search_terms(query)
        if not words:
            return self._load_facts([fact.id for fact in self.find_best_facts(agent_id, limit, memory_scope)[:limit]])
        seen = col(MemoryFact.place).in_({"", memory_scope})
        return self._find_all(facts_with_words(words, agent_id, sqlite=self._link.sqlite).where(seen).limit(limit))

    def record_use(self, facts: Sequence[RecalledFact]) -> None:
        """Record that a prompt used these facts, except facts with a recent use on record."""
        uncounted = [fact.id for fact in facts if not fact.is_counted]
        if uncounted:
            self._link.write_shared(MemoryFact.__tablename__, lambda: self._write_use(sorted(uncounted)))

    def _write_use(self, ids: Sequence[int]) -> None:
        """Record the use of facts; beside other writers, rows are locked in the order of their ids."""
        for some in [ids] if self._link.scoped is None else [[number] for number in ids]:
            self._write(self._TOLD, ids=write_json_list(some), at=self._now)

    def find_repeated(
        self, agent_id: int, fact: Fact, memory_scope: str, excluded_id: int | None = None
    ) -> MemoryFact | None:
        """Return the stored fact that a fact repeats, or None; the fact with the id ``excluded_id`` is ignored."""
        keys = self._likeness_keys(agent_id, memory_scope, [fact])
        keys.pop(excluded_id or 0, None)
        return self._find_same(fact.content, keys)

    def save_fact(self, fact: MemoryFact) -> MemoryFact:
        """Insert or update a fact, with its search index and its key for finding repeats."""
        fact.content = fact_line(fact.content)
        fact.likeness, fact.words = likeness_key(fact.content), index_text(fact.content)
        return self._save_objects(fact)

    def _find_best_others(
        self, written: Sequence[tuple[RecalledFact, bool]], count: int, scope_values: Mapping[str, object]
    ) -> list[RecalledFact]:
        """Return the best facts that are not sticky; ``written`` has facts by stored confidence, and their freshness.

        Confidence falls with the time since the last use, except for fresh facts. If all facts in ``written`` are
        fresh, they are the result. Otherwise the current confidence of all candidates is computed.
        """
        if all(is_fresh for _, is_fresh in written):
            return [fact for fact, _ in written]
        ids = rank_facts(
            map(FactRank._make, self._read_rows(self._STANDINGS, **scope_values, at_most=CANDIDATES)), count, self._now
        )
        rows = self._read_rows(self._BY_ID, ids=write_json_list(ids), counted_since=scope_values["counted_since"])
        facts = {fact.id: fact for fact in map(RecalledFact._make, rows)}
        return [facts[fact_id] for fact_id in ids]

    def _likeness_keys(self, agent_id: int, memory_scope: str, facts: Sequence[Fact]) -> dict[int, str]:
        """Return the keys of stored facts that may repeat one of these facts of one category, by fact id."""
        least, most = key_lengths([content for _, content in facts])
        values = {"of_agent": agent_id, "at": memory_scope, "about": facts[0].category, "least": least, "most": most}
        return dict(self._read_rows(self._KEYS, **values))

    def _find_same(self, content: str, keys: Mapping[int, str]) -> MemoryFact | None:
        near = self._load_facts(similar_facts(content, keys))
        return next((known for known in near if same_fact(content, known.content)), None)

    def _load_facts(self, ids: Sequence[int]) -> list[MemoryFact]:
        """Return facts by id as objects that can be changed, in the order of the ids."""
        if not ids:
            return []
        facts = {fact.id: fact for fact in self._session.exec(self._OBJECTS, params={"ids": write_json_list(ids)})}
        return [facts[fact_id] for fact_id in ids]
