"""The promise, as checks from outside: nothing lost, nothing twice, nothing bought again, everything in order."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from tests.support.chatting import Person
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import LLMServer


@dataclass(frozen=True)
class Bought:
    """What a message has cost: its requests at the model, and how many of its calls are kept in each state.

    Read while the process is dead, it tells what the recovery owes: a request that was committed and has no answer is
    marked interrupted, and only answers that are not kept are asked for again.
    """

    requests: int
    answered: int
    unanswered: int

    @classmethod
    def read(cls, evidence: Evidence, llm: LLMServer, client_id: str) -> "Bought":
        """Read it now."""
        jobs = evidence.jobs(client_id)
        calls = evidence.calls(jobs[0]["id"]) if jobs else Counter[str]()
        return cls(len(llm.matching(client_id)), calls["answered"], calls["sent"] + calls["interrupted"])


def assert_bought_once(evidence: Evidence, llm: LLMServer, client_id: str, at_death: Bought) -> None:
    """No answer that was kept at the last death is bought again, and each call that it cut off says so."""
    now = Bought.read(evidence, llm, client_id)
    assert now.unanswered == at_death.unanswered
    assert now.requests == at_death.requests + now.answered - at_death.answered


def assert_answered_once(evidence: Evidence, somebody: Person, job: Row, client_id: str) -> None:
    """One inbox row, one row of the user, one of the assistant; each chunk sent once, and seen once."""
    assert job["status"] == "completed"
    assert evidence.user_rows(client_id) == (1, 1)
    (answer,) = evidence.answers(job["id"])
    assert evidence.calls(job["id"], "answer")["answered"] == 1
    assert_delivered_once(evidence, somebody, job, answer)
    assert_journal_closed(evidence, job)
    assert_books_closed(evidence, job)


def assert_answered_together(evidence: Evidence, somebody: Person, host: Row, client_ids: list[str]) -> None:
    """One row of each message, one answer to all of them, in reply to the last, by the job that answers for it."""
    assert host["status"] == "completed"
    answering = [job for client_id in client_ids for job in evidence.jobs(client_id)]
    assert [job["id"] for job in answering] == [host["id"]] * len(client_ids)
    assert [evidence.user_rows(client_id) for client_id in client_ids] == [(1, 1)] * len(client_ids)
    (answer,) = evidence.answers(host["id"])
    assert evidence.calls(host["id"], "answer")["answered"] == 1
    assert_delivered_once(evidence, somebody, host, answer)
    *earlier, last = client_ids
    assert [len(somebody.replies_to(client_id)) for client_id in earlier] == [0] * len(earlier)
    assert len(somebody.replies_to(last)) == 1
    assert_journal_closed(evidence, host)
    assert_books_closed(evidence, host)


def assert_delivered_once(evidence: Evidence, somebody: Person, job: Row, text: str) -> None:
    """Every chunk has its receipt, and the person saw each of them once, in order, and the whole text in them."""
    chunks = evidence.deliveries(job["id"])
    assert {chunk["state"] for chunk in chunks} == {"sent"}
    ids = {chunk["id"] for chunk in chunks}
    seen = [frame for frame in somebody.replies if frame["id"] in ids]
    assert [frame["id"] for frame in seen] == [chunk["id"] for chunk in chunks]
    assert " ".join(frame["content"] for frame in seen).split() == text.split()
    assert not [lane for lane in evidence.lanes() if lane["job_id"] == job["id"]]


def assert_journal_closed(evidence: Evidence, job: Row) -> None:
    """Every step is done once, and nothing is left running."""
    steps = evidence.steps(job["id"])
    assert [step for step, state in steps if state == "running"] == []
    done = [step for step, state in steps if state == "done"]
    assert len(done) == len(set(done)) > 0


def assert_books_closed(evidence: Evidence, job: Row) -> None:
    """Every attempt at a call has one row of usage that says how it ended, and nothing is reserved any more."""
    attempt = "purpose, number, attempt, state, account, cost_usd"
    calls = evidence.rows(f"SELECT {attempt} FROM llm_calls WHERE job_id = ? ORDER BY 1, 2, 3", job["id"])
    used = evidence.rows(
        f"SELECT {attempt} FROM usage_log WHERE job_id = ? AND purpose != 'voice' ORDER BY 1, 2, 3", job["id"]
    )
    assert used == calls
    assert "sent" not in {call["state"] for call in calls}
    assert evidence.rows("SELECT * FROM reservations WHERE job_id = ?", job["id"]) == []


def assert_in_order(evidence: Evidence, somebody: Person, llm: LLMServer, client_ids: list[str]) -> None:
    """One after another, in the order of arrival; each prompt holds every answer before it."""
    answers: list[str] = []
    for earlier, later in pairwise(client_ids):
        before, after = llm.matching(earlier), llm.matching(later)
        assert max(request.answered or request.received for request in before) <= min(one.received for one in after)
    for client_id in client_ids:
        prompt = "\n".join(llm.matching(client_id)[-1].texts)
        assert all(answer in prompt for answer in answers)
        answers.append(_answer(evidence, client_id))
    ids = [frame["id"] for frame in somebody.replies]
    assert ids == sorted(set(ids))
    order = [str(frame["replyTo"]).rpartition(":")[2] for frame in somebody.replies if "replyTo" in frame]
    assert order == client_ids


def _answer(evidence: Evidence, client_id: str) -> str:
    (row,) = evidence.rows(
        "SELECT messages.content FROM messages JOIN inbox ON inbox.job_id = messages.job_id "
        "WHERE messages.role = 'assistant' AND inbox.message_id LIKE ?",
        f"%:{client_id}",
    )
    return str(row["content"])
