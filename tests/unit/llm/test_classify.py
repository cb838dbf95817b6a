"""What a failed call means, by what was seen of it; the real wires are met in tests/acceptance/llm."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from maestro.domain.llm.calls import (
    AccountUnusable,
    AuthenticationFailed,
    BadRequest,
    CallSite,
    ContextOverflow,
    LLMFailure,
    ModelTimeout,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
    ToolsUnsupported,
)
from maestro.llm.failures import FailureEvidence, classify_failure, collect_evidence
from maestro.llm.wire import HttpExchange

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SITE = CallSite("anthropic", "main", "claude-haiku-4-5")
GEMINI_MINUTE = '"You exceeded your current quota, please check your plan" "retryDelay": "13s"'


class VendorError(Exception):
    """An exception as litellm raises them: with a status of its own making."""

    def __init__(self, status_code: int, headers: dict[str, str] | None = None) -> None:
        super().__init__("text of the vendor")
        self.status_code = status_code
        self.litellm_response_headers = headers


class ReadTimeout(Exception):
    """A timeout by name alone."""


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (429, "slow down", RateLimited),
        (429, "insufficient_quota", QuotaExhausted),
        (429, "You exceeded your current quota, please check your plan", QuotaExhausted),
        (429, GEMINI_MINUTE, RateLimited),
        (402, "", QuotaExhausted),
        (403, "Key limit exceeded (monthly limit)", QuotaExhausted),
        (400, "Your credit balance is too low", QuotaExhausted),
        (401, "", AuthenticationFailed),
        (403, "", AuthenticationFailed),
        (400, '"reason": "API_KEY_INVALID"', AuthenticationFailed),
        (400, "API key expired. Please renew the API key.", AuthenticationFailed),
        (400, "This organization has been disabled.", AuthenticationFailed),
        (429, "billing_not_active", QuotaExhausted),
        (403, "Your chosen model requires moderation and your input was flagged", BadRequest),
        (403, 'your input was flagged "flagged_input": "my credit balance, invalid_api_key"', BadRequest),
        (403, "Project `proj_1` does not have access to model `gpt-4o`", BadRequest),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", ContextOverflow),
        (400, '"code": "context_length_exceeded"', ContextOverflow),
        (413, "input is too long for requested model", ContextOverflow),
        (400, "registry.ollama.ai/library/gemma:2b does not support tools", ToolsUnsupported),
        (404, "No endpoints found that support tool use.", ToolsUnsupported),
        (413, "request_too_large", BadRequest),
        (400, "temperature: must be below 1", BadRequest),
        (404, "model not found", BadRequest),
        (307, "", BadRequest),
        (408, "", ProviderUnavailable),
        (409, "", ProviderUnavailable),
        (425, "", ProviderUnavailable),
        (500, "context_length_exceeded", ProviderUnavailable),
        (504, "insufficient_quota", ProviderUnavailable),
        (529, "overloaded", ProviderUnavailable),
        (200, "", ProviderUnavailable),
        (None, "", ProviderUnavailable),
    ],
)
def test_status_decides_and_text_tells_refusals_apart(
    status: int | None, text: str, expected: type[LLMFailure]
) -> None:
    failure = classify_failure(SITE, FailureEvidence(status, text=text), NOW)
    assert type(failure) is expected
    assert (failure.site, failure.status) == (SITE, status)
    assert not text or text not in str(failure)


WORDS = 'insufficient_quota, credit balance, "reason": "API_KEY_INVALID", exceeded your current quota'
"""What a person wrote."""


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, {"error": {"message": "bad", "code": "invalid_value", "input": WORDS}}, BadRequest),
        (400, {"error": {"message": f"Bad value in [{WORDS}]", "type": "invalid_request_error"}}, BadRequest),
        (422, {"object": "error", "message": f"Bad value: {WORDS}", "code": 422}, BadRequest),
        (400, {"detail": [{"type": "missing", "msg": "Field required", "input": WORDS}]}, BadRequest),
        (400, {"error": f"cannot read {WORDS}"}, BadRequest),
        (429, {"error": {"message": "slow down", "prompt": WORDS}}, RateLimited),
        (400, {"error": {"message": "no", "code": "insufficient_quota"}}, QuotaExhausted),
        (400, {"error": {"message": "no", "code": "billing_hard_limit_reached"}}, QuotaExhausted),
        (400, {"error": {"message": "Your credit balance is too low"}}, QuotaExhausted),
        (400, {"error": {"message": "You have reached your specified API usage limits."}}, QuotaExhausted),
        (429, {"error": {"message": "Sorry: you exceeded your current quota"}}, QuotaExhausted),
        (400, {"error": {"message": "no", "details": [{"reason": "API_KEY_INVALID"}]}}, AuthenticationFailed),
        (400, {"error": {"message": "no", "code": "invalid_api_key"}}, AuthenticationFailed),
        (400, {"error": {"message": "This organization has been disabled."}}, AuthenticationFailed),
        (400, [{"error": {"message": "API key expired. Please renew the API key."}}], AuthenticationFailed),
        (403, {"error": {"message": "no", "metadata": {"flagged_input": WORDS}}}, BadRequest),
        (400, {"object": "error", "message": "the maximum context length is 8192 tokens"}, ContextOverflow),
        (400, {"error": {"message": "no", "metadata": {"raw": '{"error":"prompt is too long"}'}}}, ContextOverflow),
        (400, {"error": "gemma:2b does not support tools"}, ToolsUnsupported),
    ],
)
def test_what_a_refusal_quotes_takes_no_account(status: int, body: object, expected: type[LLMFailure]) -> None:
    assert type(classify_failure(SITE, FailureEvidence(status, text=json.dumps(body)), NOW)) is expected


def test_what_the_library_says_itself_may_quote_too() -> None:
    assert (
        type(classify_failure(SITE, FailureEvidence(400, text=f"no such {WORDS}", sent=False), NOW)) is AccountUnusable
    )


@pytest.mark.parametrize(
    ("status", "expected"), [(None, ModelTimeout), (200, ModelTimeout), (504, ProviderUnavailable)]
)
def test_only_our_own_waiting_is_a_timeout(status: int | None, expected: type[LLMFailure]) -> None:
    assert type(classify_failure(SITE, FailureEvidence(status, timed_out=True), NOW)) is expected


def test_a_waiting_time_is_kept_where_it_helps() -> None:
    wait = timedelta(seconds=7)
    for status in (429, 402, 503):
        assert classify_failure(SITE, FailureEvidence(status, {"retry-after": "7"}), NOW).retry_after == wait
    assert classify_failure(SITE, FailureEvidence(401, {"retry-after": "7"}), NOW).retry_after is None


def test_the_message_names_the_place_the_status_and_the_fix() -> None:
    told = str(classify_failure(SITE, FailureEvidence(429, {"retry-after": "7"}), NOW))
    assert told == (
        "anthropic account 'main', model 'claude-haiku-4-5', HTTP 429: The provider is limiting requests. "
        "It asks to wait 7 s. A second account would answer meanwhile."
    )
    assert "no answer (ConnectionRefusedError)" in str(
        classify_failure(SITE, FailureEvidence(cause="ConnectionRefusedError"), NOW)
    )


def test_the_wire_goes_before_the_exception() -> None:
    error = VendorError(500, {"Retry-After": "1"})
    exchange = HttpExchange(requests=1, status=429, headers={"Retry-After": "7"}, body="slow down")
    assert collect_evidence(error, exchange) == FailureEvidence(
        429, {"retry-after": "7"}, "slow down", cause="VendorError"
    )


def test_where_nothing_was_sent_the_innermost_status_counts() -> None:
    error = caused_by(VendorError(500), caused_by(VendorError(429, {"Retry-After": "7"}), ValueError("inner")))
    found = collect_evidence(error, HttpExchange())
    assert (found.status, found.headers, found.cause) == (429, {"retry-after": "7"}, "ValueError")
    assert found.text == "text of the vendor text of the vendor inner"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (FailureEvidence(400, text="LLM Provider NOT provided", cause="BadRequestError", sent=False), AccountUnusable),
        (FailureEvidence(404, cause="BedrockError", sent=False), AccountUnusable),
        (FailureEvidence(500, cause="UnicodeEncodeError", sent=False), AccountUnusable),
        (FailureEvidence(None, cause="KeyError", sent=False), AccountUnusable),
        (FailureEvidence(None, cause="KeyError"), ProviderUnavailable),
        (FailureEvidence(500, cause="ConnectionResetError", sent=False), ProviderUnavailable),
        (FailureEvidence(429, cause="ValueError", sent=False), RateLimited),
    ],
)
def test_what_went_wrong_before_anything_was_sent_is_the_accounts(
    found: FailureEvidence, expected: type[LLMFailure]
) -> None:
    failure = classify_failure(SITE, found, NOW)
    assert type(failure) is expected
    if expected is AccountUnusable:
        assert (failure.status, failure.retryable) == (None, False)
        assert f"no request ({found.cause})" in str(failure)


def test_a_timeout_is_found_anywhere_in_the_chain() -> None:
    assert collect_evidence(caused_by(VendorError(500), ReadTimeout()), HttpExchange(requests=1)).timed_out
    assert collect_evidence(TimeoutError(), HttpExchange(requests=1)).timed_out
    assert not collect_evidence(VendorError(500), HttpExchange(requests=1)).timed_out


def test_a_circle_of_causes_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert collect_evidence(one, HttpExchange()).cause == "ValueError"
