"""``maestro schedules``: planned, listed, changed, begun, made up for and removed from a terminal."""

import json
from pathlib import Path

import pytest

from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro

ADD = ("schedules", "add", "cron", "--agent", "ada", "--channel", "news", "--prompt", "Tell the news.")
MORNING = (*ADD, "--when", "0 9 * * 1-5", "--zone", "Europe/Amsterdam", "--name", "morning")


def test_a_cron_is_planned_and_listed(rows: JobRows, maestro: Maestro) -> None:
    del rows
    assert maestro("schedules", "list").out.startswith("No schedules match")
    said, *times = maestro(*MORNING).out.splitlines()
    assert said == "cron-1: ada works at 09:00 on working days (Europe/Amsterdam), in web/news"
    assert len(times) == 5
    assert all("09:00:00 CE" in time for time in times)
    head, row = maestro("schedules", "list").out.splitlines()
    assert head.split()[:4] == ["REF", "NAME", "AGENT", "WHEN"]
    assert row.startswith("cron-1  morning  ada    at 09:00 on working days (Europe/Amsterdam)  web/news  active  in ")
    shown = maestro("schedules", "show", "cron-1").out
    assert "written as '0 9 * * 1-5' (Europe/Amsterdam)" in shown
    assert "Tell the news." in shown
    assert maestro("schedules", "list", "--state", "paused", "--json").json["items"] == []


def test_a_schedule_is_changed_paused_resumed_and_removed(rows: JobRows, maestro: Maestro) -> None:
    del rows
    maestro(*MORNING)
    assert "cron-1 is changed, and comes next " in maestro("schedules", "edit", "cron-1", "--when", "every 2h").out
    assert maestro("schedules", "pause", "cron-1").out == "cron-1 is paused\n"
    assert maestro("schedules", "show", "cron-1", "--json").json["state"] == "paused"
    assert "is changed" in maestro("schedules", "resume", "cron-1").out
    assert maestro("schedules", "remove", "cron-1").out == "cron-1 is gone\n"
    gone = maestro("schedules", "show", "cron-1")
    assert (gone.code, gone.err) == (
        1,
        "maestro: there is no schedule 'cron-1'; `maestro schedules list` shows all schedules\n",
    )


def test_a_heartbeat_has_its_script_in_a_file(rows: JobRows, maestro: Maestro, tmp_path: Path) -> None:
    del rows
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"url": "https://example.com/rate", "template": "{{rate}}"}))
    add = ("schedules", "add", "heartbeat", "--agent", "ada", "--channel", "rates", "--when", "every 1h")
    maestro(*add, "--script-file", str(script))
    shown = maestro("schedules", "show", "heartbeat-1", "--json").json
    assert (shown["name"], shown["script"]["url"]) == ("Heartbeat", "https://example.com/rate")
    maestro("schedules", "edit", "heartbeat-1", "--no-script", "--prompt", "Look.")
    assert maestro("schedules", "show", "heartbeat-1", "--json").json["script"] is None
    script.write_text("{}")
    assert "script.url: is missing" in maestro(*add, "--script-file", str(script)).err
    script.write_text("no")
    assert "is no JSON" in maestro(*add, "--script-file", str(script)).err
    script.write_text("[" * 5000)
    assert "is no JSON" in maestro(*add, "--script-file", str(script)).err


def test_a_run_is_begun_and_its_job_found(rows: JobRows, maestro: Maestro) -> None:
    del rows
    maestro(*MORNING)
    job_id = maestro("schedules", "run", "cron-1").out.strip()
    (job,) = maestro("jobs", "list", "--schedule", "cron-1", "--json").json["items"]
    assert job["id"] == job_id
    assert "cron-1" in maestro("jobs", "list").out.splitlines()[1]
    shown = maestro("jobs", "show", job_id).out
    facts = [line.split() for line in shown.splitlines()]
    assert ["schedule", "cron-1"] in facts
    assert ["task", "Tell", "the", "news."] in facts
    twice = maestro("schedules", "run", "cron-1")
    assert twice.code == 1
    assert job_id in twice.err


def test_what_passed_is_made_up_for(rows: JobRows, maestro: Maestro) -> None:
    del rows
    maestro(*MORNING)
    stretch = ("schedules", "backfill", "cron-1", "--from", "2025-11-03T09:00", "--to", "2025-11-05T08:59")
    told = maestro(*stretch, "--preview").out.splitlines()
    assert told[-1] == "This would start 2 runs, one after the other."
    begun = maestro(*stretch, "--json").json
    assert [time["time"] for time in begun["times"]] == ["2025-11-03T08:00:00Z", "2025-11-04T08:00:00Z"]
    assert begun["times"][0]["jobId"] == "maestro-cron-1-2025-11-03T08:00:00Z"
    assert len(maestro("jobs", "list", "--json").json["items"]) == 2
    assert "expected a time" in maestro("schedules", "backfill", "cron-1", "--from", "noon").err


def test_times_are_shown_of_what_nobody_has_planned(rows: JobRows, maestro: Maestro) -> None:
    del rows
    said, *times = maestro("schedules", "preview", "30 7 * * mon", "--zone", "Asia/Kolkata").out.splitlines()
    assert said == "at 07:30 on Mondays (Asia/Kolkata)"
    assert len(times) == 5
    assert all(time.startswith("  Mon ") and time.endswith(" 07:30:00 IST") for time in times)


def test_times_are_shown_without_a_database_and_with_what_the_clocks_pass_over(
    rows: JobRows, maestro: Maestro, tmp_path: Path
) -> None:
    del rows
    preview = ("schedules", "preview", "--data-dir", str(tmp_path / "nothing"))
    lines = maestro(*preview, "30 2 * * *", "--zone", "Europe/Amsterdam").out.splitlines()
    assert len(lines) == 7
    assert "the clocks of Europe/Amsterdam go forward over 02:30: that run comes at 03:00." in lines[-1]
    assert "at least 30 seconds" in maestro(*preview, "every 10s").err
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--when", "banana"), "write it as every 15m"),
        (("--when", "61 * * * *"), "the minute must be a number from 0 to 59"),
        (("--when", "every 10s"), "an interval has at least 30 seconds"),
        (("--agent", "nobody", "--when", "every 1h"), "there is no agent 'nobody'"),
        (("--when", "every 1h", "--jitter", "4000"), "the jitter must be from 0 to 3600"),
        ((), "schedule: is missing"),
    ],
)
def test_a_mistake_is_said_in_a_line(rows: JobRows, maestro: Maestro, options: tuple[str, ...], problem: str) -> None:
    del rows
    ran = maestro(*ADD, *options)
    assert ran.code == 1
    assert problem in ran.err
    assert len(ran.err.splitlines()) == 1
