"""Signatures of deliveries, in both schemes; the fixed values are those of the schemes' own documentation."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from maestro.domain.webhooks.webhook import (
    TOLERANCE,
    BadSignature,
    SignatureScheme,
    SignedDelivery,
    check_signature,
    checked_secret,
    sign_delivery,
)

STANDARD, GITHUB = SignatureScheme.STANDARD, SignatureScheme.GITHUB
NOW = datetime.fromtimestamp(1614265330, UTC)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {"webhook-id": ID, "webhook-timestamp": "1614265330", "webhook-signature": SIGNATURE}

GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB_BODY = b"Hello, World!"
GITHUB_MAC = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
GITHUB_HEADERS = {"x-github-delivery": "72d3162e", "x-hub-signature-256": f"sha256={GITHUB_MAC}"}


def test_both_schemes_are_as_documented() -> None:
    assert sign_delivery(STANDARD, SECRET, ID, BODY, NOW) == HEADERS
    assert check_signature(STANDARD, SECRET, HEADERS, BODY, NOW).delivery_id == ID
    assert sign_delivery(GITHUB, GITHUB_SECRET, "72d3162e", GITHUB_BODY, NOW) == GITHUB_HEADERS
    assert check_signature(GITHUB, GITHUB_SECRET, GITHUB_HEADERS, GITHUB_BODY, NOW) == SignedDelivery(
        "72d3162e", GITHUB_MAC
    )


@pytest.mark.parametrize(
    "signatures", [f"v1,AAAA {SIGNATURE}", f"v1a,xyz {SIGNATURE} v2,abc", f"  {SIGNATURE}", f"v1,? {SIGNATURE}"]
)
def test_one_of_several_signatures_is_enough(signatures: str) -> None:
    assert check_signature(STANDARD, SECRET, {**HEADERS, "webhook-signature": signatures}, BODY, NOW).delivery_id == ID


@pytest.mark.parametrize("away", [TOLERANCE, -TOLERANCE])
def test_clocks_may_differ_by_the_tolerance(away: timedelta) -> None:
    assert check_signature(STANDARD, SECRET, HEADERS, BODY, NOW + away).delivery_id == ID
    with pytest.raises(BadSignature, match="more than 5 minutes"):
        check_signature(STANDARD, SECRET, HEADERS, BODY, NOW + away * 1.01)


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": ""},
        {"webhook-id": "another"},
        {"webhook-id": "two words"},
        {"webhook-id": "x" * 257},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "1614265331"},
        {"webhook-timestamp": "-1614265330"},
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": "\u0661"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,\u00e4"},
        {"webhook-signature": SIGNATURE.replace("v1,", "v1a,")},
        {"webhook-signature": SIGNATURE.replace("g0", "h0")},
        {"webhook-signature": SIGNATURE.removeprefix("v1,")},
    ],
)
def test_whatever_is_changed_is_refused(changed: Mapping[str, str]) -> None:
    with pytest.raises(BadSignature):
        check_signature(STANDARD, SECRET, {**HEADERS, **changed}, BODY, NOW)


@pytest.mark.parametrize(
    ("changed", "body"),
    [
        ({"x-hub-signature-256": ""}, GITHUB_BODY),
        ({"x-hub-signature-256": GITHUB_MAC}, GITHUB_BODY),
        ({"x-hub-signature-256": "sha256=" + "0" * 64}, GITHUB_BODY),
        ({"x-hub-signature-256": "sha256=\u00e4"}, GITHUB_BODY),
        ({"x-github-delivery": "two words"}, GITHUB_BODY),
        ({}, GITHUB_BODY + b"!"),
    ],
)
def test_whatever_is_changed_of_github_is_refused(changed: Mapping[str, str], body: bytes) -> None:
    with pytest.raises(BadSignature):
        check_signature(GITHUB, GITHUB_SECRET, {**GITHUB_HEADERS, **changed}, body, NOW)


def test_without_an_id_github_is_known_by_its_signature() -> None:
    headers = {"x-hub-signature-256": f"sha256={GITHUB_MAC}"}
    assert check_signature(GITHUB, GITHUB_SECRET, headers, GITHUB_BODY, NOW).delivery_id == GITHUB_MAC


def test_nobody_learns_our_time_without_the_secret() -> None:
    late = NOW + timedelta(hours=1)
    with pytest.raises(BadSignature, match="another secret"):
        check_signature(STANDARD, SECRET, HEADERS, BODY + b" ", late)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "no base64!", "whsec_" + "A" * 800])
def test_a_secret_that_cannot_sign_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="leave it out"):
        checked_secret(STANDARD, secret)


def test_a_short_secret_of_github_is_refused() -> None:
    with pytest.raises(ValueError, match="16 to 512 bytes"):
        checked_secret(GITHUB, "hunter2")
