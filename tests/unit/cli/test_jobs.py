"""``maestro jobs``: what an operator sees and does from a terminal, for people and as JSON."""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from maestro.domain.jobs.job import JobKind, JobStatus
from tests.support.job_rows import SECRET_ANSWER, JobRows
from tests.support.ports import free_port
from tests.unit.cli.conftest import Maestro


def test_the_list_is_a_table_with_whole_ids(rows: JobRows, maestro: Maestro) -> None:
    failed = rows.failed()
    cron = rows.add(kind=JobKind.CRON, agent=None)
    ran = maestro("jobs", "list")
    assert ran.code == 0
    head, first, second = ran.out.splitlines()
    assert head.split() == ["ID", "STATUS", "KIND", "AGENT", "CHANNEL", "AGE", "ATTEMPTS", "ERROR"]
    assert first.split()[:5] == [cron, "pending", "cron", "-", "web/general"]
    assert second.split()[:4] == [failed, "failed", "message", "ada"]
    assert second.split()[-2:] == ["0", "ProviderDown"]


def test_an_empty_list_says_so(maestro: Maestro) -> None:
    assert maestro("jobs", "list").out == "No jobs match.\n"
    assert maestro("jobs", "list", "--json").json == {"items": [], "next": None}


def test_the_list_is_filtered(rows: JobRows, maestro: Maestro) -> None:
    pending, failed = rows.add("deploy it"), rows.failed(error="RateLimited")
    slack = rows.add(platform="slack", agent=None)

    def found(*options: str) -> list[str]:
        return [job["id"] for job in maestro("jobs", "list", "--json", *options).json["items"]]

    assert found("--status", "failed") == [failed]
    assert found("--status", "failed", "--status", "pending") == [slack, failed, pending]
    assert found("--kind", "cron") == []
    assert found("--agent", "ada") == [failed, pending]
    assert found("--platform", "slack") == [slack]
    assert found("--error", "RateLimited") == [failed]
    assert found("--q", "DEPLOY") == [pending]


def test_a_long_list_goes_on_where_it_ended(rows: JobRows, maestro: Maestro) -> None:
    added = [rows.add() for _ in range(5)]
    page = maestro("jobs", "list", "--limit", "3", "--json").json
    rest = maestro("jobs", "list", "--cursor", page["next"], "--json").json
    assert [job["id"] for job in page["items"] + rest["items"]] == added[::-1]
    assert rest["next"] is None
    assert f"--cursor {page['next']}" in maestro("jobs", "list", "--limit", "3").out


def test_show_is_a_timeline(rows: JobRows, maestro: Maestro) -> None:
    job_id = rows.add("what is the weather")
    rows.worked(job_id)
    ran = maestro("jobs", "show", job_id)
    assert ran.code == 0
    assert ran.out.startswith(f"{job_id}  running\n")
    for words in ("what is the weather", "Steps", "interrupted", "RateLimited: 429 from the provider", "250 ms"):
        assert words in ran.out
    for words in ("Model calls", "claude-haiku-4-5", "$0.0025", "Sent", "m-1", f"http://localhost:8080/queue/{job_id}"):
        assert words in ran.out
    assert SECRET_ANSWER not in ran.out


def test_show_as_json_is_what_the_api_says(rows: JobRows, maestro: Maestro) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    job = maestro("jobs", "show", job_id, "--json").json
    assert (job["id"], job["status"]) == (job_id, "running")
    assert [step["state"] for step in job["steps"]] == ["done", "interrupted", "failed", "running"]
    assert len(job["calls"]) == 3
    assert len(job["deliveries"]) == 2


def test_nothing_from_outside_moves_the_cursor_of_a_terminal(rows: JobRows, maestro: Maestro) -> None:
    job_id = rows.failed("\x1b[2Jgone\x07", reason="bad\x1b]0;title\x07\nnext line")
    for arguments in (("list",), ("show", job_id)):
        out = maestro("jobs", *arguments).out
        assert "\x1b" not in out
        assert "\x07" not in out
    assert "bad ]0;title next line" in maestro("jobs", "show", job_id).out


def test_a_job_that_does_not_exist_is_one_line(maestro: Maestro) -> None:
    for arguments in (("show", "nope"), ("replay", "nope"), ("cancel", "nope"), ("show", "nope", "--json")):
        ran = maestro("jobs", *arguments)
        assert (ran.code, ran.out, ran.err) == (1, "", "maestro: job nope does not exist\n")


def test_replay_prints_the_job_that_runs_now(rows: JobRows, maestro: Maestro) -> None:
    failed, completed = rows.failed(), rows.end(rows.add(), JobStatus.COMPLETED)
    assert maestro("jobs", "replay", failed).out == f"{failed}\n"
    again = maestro("jobs", "replay", completed, "--mode", "restart", "--json").json["id"]
    assert again != completed
    assert maestro("jobs", "show", again, "--json").json["restartedFrom"] == completed
    with rows.store.view() as tx:
        assert [(entry.actor, entry.action) for entry in tx.system.audit.list_latest_entries(2)] == [
            ("operator", "job.restart"),
            ("operator", "job.resume"),
        ]


def test_a_preview_changes_nothing(rows: JobRows, maestro: Maestro) -> None:
    failed = rows.failed()
    out = maestro("jobs", "replay", failed, "--preview").out
    assert "resume would begin at: route" in out
    assert "at least 1" in out
    assert "Nothing was changed." in out
    found = maestro("jobs", "replay", failed, "--mode", "what-if", "--model", "gpt-4o", "--preview", "--json").json
    assert (found["mode"], found["step"], found["edits"]["model"]) == ("what-if", "start", "gpt-4o")
    assert "not possible" in maestro("jobs", "replay", rows.add(), "--preview").out
    assert len(maestro("jobs", "list", "--json").json["items"]) == 2


def test_edits_go_with_a_restart_and_are_kept_unless_they_are_dropped(rows: JobRows, maestro: Maestro) -> None:
    failed = rows.failed()
    ran = maestro("jobs", "replay", failed, "--mode", "restart", "--agent", "ada", "--prompt", "In German, please.")
    again = ran.out.strip()
    assert maestro("jobs", "show", again, "--json").json["edits"] == {
        "agent": "ada",
        "model": None,
        "prompt": "In German, please.",
    }
    assert "asked instead" in maestro("jobs", "show", again).out
    rows.end(again, JobStatus.FAILED)
    third = maestro("jobs", "replay", again, "--mode", "restart").out.strip()
    assert maestro("jobs", "show", third, "--json").json["edits"]["agent"] == "ada"
    rows.end(third, JobStatus.FAILED)
    fourth = maestro("jobs", "replay", third, "--mode", "restart", "--no-edits").out.strip()
    assert maestro("jobs", "show", fourth, "--json").json["edits"] is None
    assert maestro("jobs", "replay", failed, "--model", "two words").code == 2


def test_show_tells_a_what_if_from_a_restart(rows: JobRows, maestro: Maestro) -> None:
    failed = rows.failed()
    what_if = maestro("jobs", "replay", failed, "--mode", "what-if").out.strip()
    assert re.search(f"^  what if +{failed}$", maestro("jobs", "show", what_if).out, re.MULTILINE)
    restarted = maestro("jobs", "replay", failed, "--mode", "restart").out.strip()
    assert re.search(f"^  restarted from +{failed}$", maestro("jobs", "show", restarted).out, re.MULTILINE)


def test_replay_says_why_it_cannot(rows: JobRows, maestro: Maestro) -> None:
    ran = maestro("jobs", "replay", rows.add())
    assert ran.code == 1
    assert ran.err.startswith("maestro: job ")
    assert "only an ended job" in ran.err


@pytest.mark.parametrize(
    ("status", "error", "code", "words"),
    [
        (JobStatus.COMPLETED, "", 0, "completed"),
        (JobStatus.FAILED, "ProviderDown", 1, "failed: ProviderDown: it is down"),
    ],
)
def test_waiting_tells_how_it_ends(
    rows: JobRows, maestro: Maestro, status: JobStatus, error: str, code: int, words: str
) -> None:
    job_id = rows.failed()

    def finish() -> None:
        """Do what the engine would do: take the job when it is pending again, and end it."""
        while rows.store.find_problem() is None:
            with rows.store.view() as tx:
                if tx.jobs.read_status(job_id) is JobStatus.PENDING:
                    break
            time.sleep(0.05)
        time.sleep(0.2)
        rows.end(job_id, status, error, "it is down" if error else "")

    engine = threading.Thread(target=finish)
    engine.start()
    ran = maestro("jobs", "replay", job_id, "--wait")
    engine.join()
    assert ran.code == code
    assert ran.out == f"{job_id}\n{words}\n"
    assert "pending; Ctrl-C ends the waiting" in ran.err


def test_ctrl_c_ends_the_waiting_and_not_the_job(rows: JobRows, tmp_path: Path) -> None:
    job_id = rows.failed()
    command = [sys.executable, "-m", "maestro.cli", "jobs", "replay", job_id, "--wait", "--data-dir", "data"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "pending" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert (process.returncode, said) == (130, "")
    with rows.store.view() as tx:
        assert tx.jobs.read_status(job_id) is JobStatus.PENDING


def test_cancel_stops_what_waits_and_asks_what_runs(
    rows: JobRows, maestro: Maestro, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAESTRO_TEMPORAL_PORT", str(free_port()))
    waiting, running, also = rows.add(), rows.add(), rows.add()
    rows.worked(running)
    assert maestro("jobs", "cancel", waiting).out == f"{waiting} is cancelled\n"
    assert maestro("jobs", "cancel", also, "--json").json == {
        "id": also,
        "status": "cancelled",
        "error": "",
        "reason": "",
    }
    assert maestro("jobs", "cancel", running).out == f"{running} was told to stop and is still running\n"
    ran = maestro("jobs", "cancel", waiting)
    assert (ran.code, ran.out) == (1, "")
    assert "nothing to cancel" in ran.err


def test_the_folder_may_be_named_anywhere_on_the_line(maestro: Maestro, tmp_path: Path) -> None:
    elsewhere = JobRows.at(tmp_path / "elsewhere")
    job_id = elsewhere.add()
    elsewhere.store.close()
    folder = ("--data-dir", str(tmp_path / "elsewhere"))
    assert job_id in maestro(*folder, "jobs", "list").out
    assert job_id in maestro("jobs", "list", *folder).out
    assert job_id not in maestro("jobs", "list").out
