"""Many jobs at once from a terminal: told before, asked whether it is meant, and shown after."""

import pytest

from maestro.domain.jobs.job import JobStatus
from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro


def batches(maestro: Maestro) -> list[str]:
    return [batch["id"] for batch in maestro("jobs", "batches", "--json").json["items"]]


def test_a_dry_run_only_tells(rows: JobRows, maestro: Maestro) -> None:
    rows.failed(), rows.failed(), rows.end(rows.add(), JobStatus.COMPLETED)
    ran = maestro("jobs", "replay-all", "--agent", "ada", "--dry-run")
    assert ran.code == 0
    assert "3 jobs match; 2 of them would be resumed." in ran.out
    assert "2 from route" in ran.out
    assert "1 not: job * is completed" in ran.out
    told = maestro("jobs", "replay-all", "--agent", "ada", "--dry-run", "--json").json
    assert (told["matching"], told["possible"]) == (3, 2)
    assert batches(maestro) == []


def test_it_asks_whether_it_is_meant(rows: JobRows, maestro: Maestro, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.failed()
    monkeypatch.setattr("typer.confirm", lambda *_, **__: (_ for _ in ()).throw(SystemExit(1)))
    assert maestro("jobs", "replay-all", "--status", "failed").code == 1
    assert batches(maestro) == []
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    ran = maestro("jobs", "replay-all", "--status", "failed")
    assert (ran.code, batches(maestro)) == (0, [ran.out.splitlines()[-3].split()[0]])


def test_a_batch_is_begun_shown_and_stopped(rows: JobRows, maestro: Maestro) -> None:
    failed = rows.failed()
    begun = maestro("jobs", "replay-all", "--status", "failed", "--yes", "--json").json
    assert (begun["action"], begun["total"], begun["waiting"], begun["actor"]) == ("resume", 1, 1, "operator")
    assert begun["filter"]["status"] == ["failed"]
    assert "1 jobs: 1 waiting" in maestro("jobs", "batches", begun["id"]).out
    assert begun["id"] in maestro("jobs", "batches").out
    (item,) = maestro("jobs", "batch-jobs", begun["id"], "--json").json["items"]
    assert (item["jobId"], item["state"]) == (failed, "waiting")
    assert maestro("jobs", "stop-batch", begun["id"], "--json").json["skipped"] == 1
    assert "skipped" in maestro("jobs", "batch-jobs", begun["id"], "--state", "skipped").out
    again = maestro("jobs", "stop-batch", begun["id"])
    assert (again.code, "has ended" in again.err) == (1, True)


def test_restarts_take_edits(rows: JobRows, maestro: Maestro) -> None:
    rows.failed()
    options = ("jobs", "replay-all", "--status", "failed", "--yes", "--json", "--with-model", "other")
    assert maestro(*options, "--mode", "restart").json["edits"] == {"agent": None, "model": "other", "prompt": None}
    refused = maestro(*options)
    assert (refused.code, "edits need the mode restart" in refused.err) == (2, True)


def test_all_jobs_are_meant_only_when_somebody_says_so(rows: JobRows, maestro: Maestro) -> None:
    rows.add()
    refused = maestro("jobs", "cancel-all", "--yes")
    assert refused.code == 2
    assert "--all-matching" in refused.err
    assert batches(maestro) == []
    assert maestro("jobs", "cancel-all", "--all-matching", "--yes", "--json").json["total"] == 1


def test_another_number_of_jobs_than_expected_is_left_alone(rows: JobRows, maestro: Maestro) -> None:
    rows.failed()
    ran = maestro("jobs", "replay-all", "--status", "failed", "--yes", "--expected", "2")
    assert (ran.code, "1 job matches by now, not 2" in ran.err) == (1, True)
    assert batches(maestro) == []


def test_counts_and_failures(rows: JobRows, maestro: Maestro) -> None:
    assert maestro("jobs", "errors").out == "No failures match.\n"
    assert maestro("jobs", "batches").out == "There are no batches yet.\n"
    rows.failed(reason="no answer within 7 s"), rows.failed(reason="no answer within 8 s")
    assert maestro("jobs", "counts", "--json").json["failed"] == 2
    assert ["failed", "2"] in [line.split() for line in maestro("jobs", "counts").out.splitlines()]
    (group,) = maestro("jobs", "errors", "--json").json["items"]
    assert (group["count"], group["reason"]) == (2, "no answer within * s")
    assert "no answer within * s" in maestro("jobs", "errors").out
    assert len(maestro("jobs", "list", "--json", "--reason", group["reason"]).json["items"]) == 2


def test_a_time_is_read_in_the_zone_of_this_machine(rows: JobRows, maestro: Maestro) -> None:
    first, second = rows.add(), rows.add()
    at = rows.clock.now.astimezone().replace(tzinfo=None).isoformat()
    listed = maestro("jobs", "list", "--json", "--since", at).json["items"]
    assert [job["id"] for job in listed] == [second]
    before = maestro("jobs", "list", "--json", "--until", rows.clock.now.isoformat()).json["items"]
    assert [job["id"] for job in before] == [first]
    assert len(maestro("jobs", "list", "--json", "--at", at).json["items"]) == 2
    for job in (first, second):
        rows.end(job, JobStatus.COMPLETED)
    assert maestro("jobs", "list", "--json", "--at", "08:00").json["items"] == [], "08:00 of today or yesterday"
    wrong = maestro("jobs", "list", "--since", "yesterday")
    assert (wrong.code, "such as 2026-11-20T09:00" in wrong.err) == (2, True)
