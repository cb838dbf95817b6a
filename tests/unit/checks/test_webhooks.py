"""What ``maestro doctor`` says of webhooks."""

import base64
from datetime import UTC, datetime

from maestro.diagnostics.doctor import check_webhooks
from maestro.domain.health import DiagnosisLevel
from maestro.domain.webhooks.webhook import Webhook
from maestro.installation.data_folder import SecretKeys
from tests.support.hooks import SECRET

NOW = datetime(2026, 11, 22, tzinfo=UTC)
KEYS = SecretKeys(base64.urlsafe_b64encode(b"the key of the keys of the tests"), {"SECRET": SECRET})
OTHER = SecretKeys(base64.urlsafe_b64encode(b"another key of the keys of tests"), {})


def webhook(secret: str, *, enabled: bool = True) -> Webhook:
    return Webhook(
        path="deploys",
        agent_id=1,
        name="deploys",
        prompt_template="-",
        secret=secret,
        last4="",
        platform="web",
        account="default",
        channel="builds",
        per_minute=1,
        enabled=enabled,
        created_by="operator",
        created_at=NOW,
        updated_at=NOW,
    )


def test_without_webhooks_nothing_is_said() -> None:
    assert check_webhooks([], KEYS) == []


def test_secrets_that_can_be_read_are_fine() -> None:
    found = [webhook(KEYS.stored_form(SECRET).secret), webhook("env:SECRET"), webhook("env:GONE", enabled=False)]
    (said,) = check_webhooks(found, KEYS)
    assert (said.verdict, said.found) == (DiagnosisLevel.FINE, "2 of 3 are enabled")


def test_a_secret_of_another_data_folder_is_broken() -> None:
    (said,) = check_webhooks([webhook(KEYS.stored_form(SECRET).secret)], OTHER)
    assert said.verdict is DiagnosisLevel.BROKEN
    assert "maestro webhooks rotate deploys" in said.fix


def test_what_only_another_process_may_read_is_a_note() -> None:
    (said,) = check_webhooks([webhook("env:GONE")], KEYS)
    assert (said.verdict, "GONE" in said.found) == (DiagnosisLevel.NOTE, True)


def test_a_secret_that_can_sign_nothing_is_told() -> None:
    (said,) = check_webhooks(
        [webhook("env:SECRET")], SecretKeys(base64.urlsafe_b64encode(b"x" * 32), {"SECRET": "hunter2"})
    )
    assert said.verdict is DiagnosisLevel.NOTE
    assert "hunter2" not in said.found
