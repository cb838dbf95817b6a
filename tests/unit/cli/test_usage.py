"""``maestro usage``: what calls cost, for people and as JSON, like on the API."""

import pytest

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
    head, second, first = ran.out.splitlines()
    assert head.split()[:7] == ["DAY", "CALLS", "FAILED", "IN", "OUT", "CACHED", "COST"]
    assert second.split() == ["2026-11-21", "3", "1", "150", "10", "60", "$0.2500", "1", "1", "$0.1250"]
    assert first.split() == ["2026-11-20", "1", "0", "100", "10", "60", "$0.5000", "0", "0", "-"]


def test_a_small_cost_does_not_look_like_none(rows: JobRows, maestro: Maestro) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        key = CallKey(job_id=job_id, number=1)
        attempt = tx.calls.sent(key, "digest", CallEstimate("anthropic", "claude-haiku-4-5", 10, 0.0, "main"))
        tx.calls.keep_answer(key, attempt, response_of("hello").model_copy(update={"cost_usd": 0.00004}))
    _, line = maestro("usage", *DAYS).out.splitlines()
    assert line.split()[6] == "<$0.0001"


def test_what_belongs_to_nobody_has_a_line_of_its_own(rows: JobRows, maestro: Maestro) -> None:
    use(rows)
    lines = maestro("usage", "--by", "client", *DAYS).out.splitlines()
    assert [line.split()[0] for line in lines] == ["CLIENT", "Acme", "-"]


def test_a_long_list_goes_on_where_it_ended(rows: JobRows, maestro: Maestro) -> None:
    use(rows)
    page = maestro("usage", "--by", "account", *DAYS, "--limit", "1", "--json").json
    assert [item["key"] for item in page["items"]] == ["main"]
    rest = maestro("usage", "--by", "account", *DAYS, "--cursor", page["next"], "--json").json
    assert ([item["key"] for item in rest["items"]], rest["next"]) == (["spare"], None)


def test_no_call_is_a_sentence(rows: JobRows, maestro: Maestro) -> None:
    del rows
    assert maestro("usage", "--until", "2020-01-01").out == "No model was called in this time.\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--since", "2026-11-21", "--until", "2026-11-20"), "since comes after until; exchange them"),
        (("--cursor", "x"), "this is not a cursor from an earlier answer"),
        (("--since", "yesterday"), "yesterday"),
        (("--until", "9999-12-31"), "2999-12-31"),
        (("--by", "mood"), "mood"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(options: tuple[str, ...], why: str, maestro: Maestro) -> None:
    ran = maestro("usage", *options)
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err
