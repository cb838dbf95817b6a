"""``maestro jobs prompt``: what exactly a model saw, in a terminal."""

from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.prompts import CallKey, CallPurpose
from tests.support.job_rows import JobRows
from tests.support.spoken import Spoken
from tests.unit.cli.conftest import Maestro


async def test_it_shows_the_last_answer_word_by_word(rows: JobRows, maestro: Maestro) -> None:
    spoken = Spoken(rows)
    job_id = await spoken.answered("what is\n  the time?", "high noon")
    ran = maestro("jobs", "prompt", job_id)
    assert ran.code == 0, ran.err
    head, *_ = ran.out.splitlines()
    [call] = maestro("jobs", "show", job_id, "--json").json["calls"]
    assert head == f"{job_id}  call {call['id']}  answer 1.1  answered"
    for words in (
        "\n  You are Ada,",
        "\n  what is\n    the time?\n",
        "\n== answer, 1 tokens\n  high noon\n",
        "own prompt",
    ):
        assert words in ran.out
    assert f"  {call['id']} " in maestro("jobs", "show", job_id).out, "where the id comes from"


async def test_a_call_is_chosen_by_its_id(rows: JobRows, maestro: Maestro) -> None:
    spoken = Spoken(rows)
    job_id = await spoken.answered("hello")
    with rows.store.begin() as tx:
        [first] = tx.llm.calls.list_calls_of_job(job_id)
        key = CallKey(job_id=job_id, number=7, purpose=CallPurpose.FACTS)
        tx.llm.calls.record_sending(key, first.request, CallEstimate("p", "m", 1, None))
    shown = maestro("jobs", "show", job_id, "--json").json["calls"]
    assert maestro("jobs", "prompt", job_id, "--json").json["id"] == first.id, "an answer is what people look for"
    facts = maestro("jobs", "prompt", job_id, "--call", str(shown[-1]["id"]), "--json").json
    assert (facts["purpose"], facts["layers"], facts["answer"]) == ("facts", [], None)


async def test_nothing_that_was_said_moves_the_cursor_of_a_terminal(rows: JobRows, maestro: Maestro) -> None:
    job_id = await Spoken(rows).answered("\x1b[2Jgone", "\x1b]0;title\x07")
    assert "\x1b" not in maestro("jobs", "prompt", job_id).out
    assert maestro("jobs", "prompt", job_id, "--json").json["messages"][-1]["text"] == "\x1b[2Jgone"


def test_what_is_not_there_is_one_line(rows: JobRows, maestro: Maestro) -> None:
    job_id = rows.add()
    for arguments, words in (
        (("nope",), "job nope does not exist"),
        ((job_id,), f"job {job_id} has called no model"),
        ((job_id, "--call", "5"), f"job {job_id} has no model call 5"),
    ):
        ran = maestro("jobs", "prompt", *arguments)
        assert (ran.code, ran.out) == (1, "")
        assert words in ran.err
