"""What a person is told while the answer has to wait for a model."""

from datetime import timedelta

import pytest

from maestro.domain.errors import WaitReason
from maestro.domain.jobs.job import Wait
from maestro.domain.jobs.steps import BUDGET_NOTICE, PROVIDER_NOTICE, WAITING_NOTICE, waiting_notice
from tests.support.job_rows import MORNING

RAISED = "That is in about 7 hours, or sooner if the operators raise the budget."


@pytest.mark.parametrize(
    ("reason", "wait", "told"),
    [
        (WaitReason.ACCOUNT, timedelta(seconds=30), WAITING_NOTICE),
        (WaitReason.ACCOUNT, timedelta(minutes=5), f"{WAITING_NOTICE} That should be in about 5 minutes."),
        (WaitReason.PROVIDER, timedelta(seconds=60), f"{PROVIDER_NOTICE} I try again in about 1 minute."),
        (WaitReason.BUDGET, timedelta(hours=7.2), f"{BUDGET_NOTICE} {RAISED}"),
        (WaitReason.ACCOUNT, timedelta(days=3), f"{WAITING_NOTICE} That should be in about 3 days."),
    ],
)
def test_it_says_why_and_roughly_when(reason: WaitReason, wait: timedelta, told: str) -> None:
    assert waiting_notice(Wait(reason=reason, wake_at=MORNING + wait), MORNING) == told


def test_a_wait_without_an_end_is_told_without_a_time() -> None:
    assert waiting_notice(Wait(reason=WaitReason.ACCOUNT), MORNING) == WAITING_NOTICE
