"""What the doctor says of heartbeats and crons."""

from datetime import UTC, datetime

from maestro.diagnostics.doctor import check_schedules
from maestro.domain.health import DiagnosisLevel
from maestro.domain.schedules.schedule import Cron

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def cron(number: int, followed: str = "told", follow_error: str = "", paused_reason: str = "") -> Cron:
    return Cron(
        id=number,
        agent_id=1,
        name=f"Job {number}",
        schedule="0 9 * * *",
        prompt="Look.",
        platform="web",
        account="default",
        channel="c",
        paused_reason=paused_reason,
        anchored_at=NOW,
        followed=followed,
        follow_error=follow_error,
        created_by="operator",
        created_at=NOW,
        updated_at=NOW,
    )


def test_nothing_is_said_where_nothing_is_planned() -> None:
    assert check_schedules([]) == []


def test_what_was_told_is_fine() -> None:
    [found] = check_schedules([cron(1), cron(2)])
    assert (found.verdict, found.found) == (DiagnosisLevel.FINE, "2 schedules, all of them known to Temporal")


def test_what_could_not_be_told_is_named_with_its_reason() -> None:
    refused, waiting = check_schedules([cron(1, follow_error="this time zone is unknown"), cron(2, followed="")])
    assert refused.verdict is DiagnosisLevel.BROKEN
    assert "cron-1 (Job 1): this time zone is unknown" in refused.found
    assert "maestro schedules edit cron-1" in refused.fix
    assert (waiting.verdict, waiting.found) == (DiagnosisLevel.NOTE, "1 of 2 have not been sent to Temporal yet")


def test_what_maestro_paused_is_named() -> None:
    [found] = check_schedules([cron(1, paused_reason="it failed 10 times in a row")])
    assert found.verdict is DiagnosisLevel.NOTE
    assert "cron-1 (Job 1) is paused: it failed 10 times in a row" in found.found
    assert "maestro schedules resume cron-1" in found.fix
