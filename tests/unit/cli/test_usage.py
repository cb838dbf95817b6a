"""``maestro usage``: what calls cost, for people and as JSON, like on the API."""

import pytest

from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.prompts import CallKey
from tests.support.job_rows import MORNING, JobRows
from tests.support.llm_requests import response_of
from tests.support.usage_rows import use
from tests.unit.cli.conftest import Maestro

DAYS = ("--since", f"{MORNING:%Y-%m-%d}", "--until", "2026-11-21")


def test_a_line_tells_what_is_known_of_a_cost_and_what_is_not(rows: JobRows, maestro: Maestro) -> None:
    use(rows)
    ran = maestro("usage", *DAYS)
    head, second, first, whole, before = ran.out.splitlines()
    assert head.split()[:7] == ["DAY", "CALLS", "FAILED", "IN", "OUT", "CACHED", "COST"]
    assert second.split() == ["2026-11-21", "3", "1", "150", "10", "60", "$0.2500", "1", "1", "$0.1250"]
    assert first.split() == ["2026-11-20", "1", "0", "100", "10", "60", "$0.5000", "0", "0", "-"]
    assert whole.split() == ["all", "4", "1", "250", "20", "120", "$0.7500", "1", "1", "$0.1250"]
    assert before.split()[:5] == ["2", "days", "before", "0", "0"]


def test_a_small_cost_does_not_look_like_none(rows: JobRows, maestro: Maestro) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        key = CallKey(job_id=job_id, number=1)
        attempt = tx.llm.calls.record_sending(
            key, "digest", CallEstimate("anthropic", "claude-haiku-4-5", 10, 0.0, "main")
        )
        tx.llm.calls.store_answer(key, attempt, response_of("hello").model_copy(update={"cost_usd": 0.00004}))
    _, line, *_ = maestro("usage", *DAYS).out.splitlines()
    assert line.split()[6] == "<$0.0001"


def test_what_belongs_to_nobody_has_a_line_of_its_own(rows: JobRows, maestro: Maestro) -> None:
    use(rows)
    lines = maestro("usage", "--by", "client", *DAYS).out.splitlines()
    assert [line.split()[0] for line in lines] == ["CLIENT", "Acme", "-", "all", "2"]


def test_a_long_list_goes_on_where_it_ended(rows: JobRows, maestro: Maestro) -> None:
    use(rows)
    page = maestro("usage", "--by", "account", *DAYS, "--limit", "1", "--json").json
    assert [item["key"] for item in page["items"]] == ["main"]
    rest = maestro("usage", "--by", "account", *DAYS, "--cursor", page["next"], "--json").json
    assert ([item["key"] for item in rest["items"]], rest["next"]) == (["spare"], None)


def test_one_agents_cost_by_day(rows: JobRows, maestro: Maestro) -> None:
    use(rows)
    page = maestro("usage", "--agent", "ada", "--account", "main", *DAYS, "--json").json
    assert [(item["key"], item["calls"]) for item in page["items"]] == [("2026-11-21", 2), ("2026-11-20", 1)]


def test_a_spreadsheet_gets_every_line(rows: JobRows, maestro: Maestro) -> None:
    use(rows)
    ran = maestro("usage", "--by", "account", *DAYS, "--csv", "--limit", "1")
    assert ran.out.splitlines() == [
        "account,calls,failures,interrupted,input_tokens,output_tokens,cached_tokens,cost_usd,unknown_cost,"
        "interrupted_cost_usd",
        "main,3,1,1,150,10,60,0.75,0,0.125",
        "spare,1,0,0,100,10,60,,1,",
    ]


def test_how_long_steps_took(rows: JobRows, maestro: Maestro) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    rows.end(job_id, JobStatus.COMPLETED)
    head, *stages, note = maestro("usage", "--latency", *DAYS).out.splitlines()
    assert head.split() == ["STAGE", "TIMES", "P50", "P95", "P99"]
    times = ["1", "250", "ms", "250", "ms", "250", "ms"]
    assert [line.split() for line in stages] == [["answer", *times], ["context", *times]]
    assert note == "Of 1 completed jobs from 2026-11-20 to 2026-11-21: the newest 500 of each day."
    assert maestro("usage", "--latency", *DAYS, "--csv").out.splitlines()[2] == ",context,1,250.0,250.0,250.0"
    assert maestro("usage", "--latency", "--until", "2020-01-01").out == "No job was completed in this period.\n"


def test_how_far_budgets_are_used(rows: JobRows, maestro: Maestro) -> None:
    use(rows)
    lines = maestro("usage", "--budgets").out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["OF", "all", "client"]
    assert lines[1].split()[1:] == ["$50.0000", "$0.0000", "$0.0000", "0%", "fine"]
    assert lines[-1].startswith("Budgets start again at ")


def test_no_call_is_a_sentence(rows: JobRows, maestro: Maestro) -> None:
    del rows
    assert maestro("usage", "--until", "2020-01-01").out == "No model was called in this period.\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--since", "2026-11-21", "--until", "2026-11-20"), "since comes after until; exchange them"),
        (("--cursor", "x"), "this is not a cursor from an earlier answer"),
        (("--since", "yesterday"), "yesterday"),
        (("--until", "9999-12-31"), "2999-12-31"),
        (("--by", "mood"), "mood"),
        (("--csv", "--json"), "leave one out"),
        (("--latency", "--budgets"), "--latency and --budgets exclude each other"),
        (("--budgets", "--csv"), "budgets have no CSV form"),
        (("--latency", "--model", "gpt"), "--model does not filter latency"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(options: tuple[str, ...], why: str, maestro: Maestro) -> None:
    ran = maestro("usage", *options)
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err
