"""The process dies while it finds out what a job would answer: nothing is bought twice, and nothing happens."""

import pytest

from maestro.domain.jobs.replay import ReplayMode
from maestro.operations.jobs import replay_job
from maestro.store.store import Store
from tests.chaos.promise import assert_books_closed, assert_journal_closed
from tests.support.chatting import person
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-what-if")]

POINTS = {
    **dict.fromkeys(("before route done", "after context done", "before wire"), 1),
    **dict.fromkeys(("after model-1 answer", "after model-1 done", "before show done", "after show done"), 1),
    # Nobody holds an answer that came when its process died: that call is made once more (design, the promise).
    "after wire": 2,
}
"""Where it dies, and how often the model is asked in all."""


def ask(evidence: Evidence, job_id: str) -> str:
    """Ask from another process what a job would answer."""
    store = Store.open(evidence.path)
    try:
        with store.begin() as tx:
            return replay_job(tx, job_id, ReplayMode.WHAT_IF, "operator")
    finally:
        store.close()


@pytest.mark.parametrize("point", POINTS)
async def test_an_answer_that_is_held_is_not_bought_again(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    client_id = f"what-if-{point.replace(' ', '-')}.a"
    async with person(maestro.web_port, client_id) as somebody:
        await somebody.say(f"{client_id} please, @helper")
        (job,) = await evidence.ended(client_id)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
        replies = len(somebody.replies)
        maestro.arm(point)
        asked = ask(evidence, job["id"])
        await maestro.crash_at(point)
        shown = await evidence.job_ended(asked)
        assert len(somebody.replies) == replies
    assert (shown["status"], bool(shown["said"]), shown["answer_id"]) == ("completed", True, None)
    assert len(llm.matching(client_id)) == 1 + POINTS[point]
    assert evidence.calls(asked, "answer")["answered"] == 1
    assert evidence.deliveries(asked) == []
    assert evidence.user_rows(client_id) == (1, 1)
    assert len(evidence.answers(job["id"])) == 1
    assert_journal_closed(evidence, shown)
    assert_books_closed(evidence, shown)
