"""The client of Slack's Web API: it makes each call once and classifies a failed one."""

import logging
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Any, cast

from aiohttp import ClientConnectorError, ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from yarl import URL

from connectors.failures import AmbiguousSend, FailureScope, NotDispatched, PermanentSend, RetryableSend, SendFailure
from connectors.slack.config import BOT_TOKEN
from maestro.domain.network import LOCAL_NAMES

NO_THREAD = "thread_not_found"
MISSING_SCOPE = "missing_scope"
ACCOUNT = frozenset(
    {
        *("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "org_login_required"),
        *(MISSING_SCOPE, "not_allowed_token_type", "ekm_access_denied"),
        *("team_access_not_granted", "two_factor_setup_required", "accesslimited", "invalid_token"),
    }
)
"""Errors that only the operator can fix: the token is invalid or lacks permissions."""
CHANNEL = frozenset(
    {
        *("channel_not_found", "not_in_channel", "is_archived", "restricted_action", "messages_tab_disabled"),
        *("restricted_action_read_only_channel", "restricted_action_non_threadable_channel", "user_not_found"),
        *("cannot_dm_bot", "user_disabled", "team_not_found", "channel_is_limited_access", "is_inactive"),
    }
)
"""Errors with which every message to the channel would fail; a locked thread is not among them."""
DENIED = frozenset({"no_permission", "access_denied"})
"""Errors that concern the channel if the call named one, else the account."""
UNKNOWN_OUTCOME = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"}
)
"""Errors after which, by Slack's documentation, the call may have taken effect in part."""
BUSY = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})

DEFAULT_RETRY_AFTER = timedelta(seconds=30)
"""The wait after a rate limit for which Slack names no time."""

BASE_URL = AsyncWebClient.BASE_URL
CALL_SECONDS = 20
"""The timeout of one call, in seconds."""

Fields = Mapping[str, Any]


def answer_failure(
    status: int, answer: Fields, retry_after: str, *, token: str = "", optional: bool = False
) -> SendFailure:
    """Translate an unsuccessful answer into a send failure; ``retry_after`` is the text of the header or "".

    ``token`` names the option of the token used, for calls that concern the whole account. ``optional`` marks calls
    that need an optional scope, for example files and reactions: without that scope the account can still send
    messages.
    """
    code = str(answer.get("error") or "")
    if status == HTTPStatus.TOO_MANY_REQUESTS or code in BUSY:
        after = timedelta(seconds=int(retry_after)) if retry_after.isdecimal() else DEFAULT_RETRY_AFTER
        return RetryableSend(f"Slack asked to wait {after.total_seconds():g} s", after)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or not code or code in UNKNOWN_OUTCOME:
        return AmbiguousSend(f"Slack answered {status}" + (f" with the error {code}" if code else ""))
    needed = str(answer.get("needed") or "")
    lacks_optional_scope = optional and code == MISSING_SCOPE
    if (code in ACCOUNT or (token and code in DENIED)) and not lacks_optional_scope:
        return PermanentSend(_describe_fix(code, needed, token or BOT_TOKEN), FailureScope.ACCOUNT, code)
    scope = FailureScope.CHANNEL if code in CHANNEL | DENIED else FailureScope.MESSAGE
    return PermanentSend(f"Slack reports {code}" + (f": the scope {needed} is missing" if needed else ""), scope, code)


def _describe_fix(code: str, needed: str, token: str) -> str:
    if code == MISSING_SCOPE:
        scope = needed or "it needs"
        return f"the {token} lacks the scope {scope}: add it on the app's page and install the app again"
    if code in ("account_inactive", "token_revoked", "token_expired"):
        return f"Slack reports {code}: install the app again and set the new {token}"
    return f"Slack reports {code}: check the {token}"


def search_failure(failure: SendFailure) -> SendFailure:
    """Translate the failure of a search for a message: an unknown outcome if Slack did not answer.

    The failure is permanent if Slack refused the search, for example because the app may not read the channel.
    """
    if isinstance(failure, PermanentSend):
        return PermanentSend(f"Slack refused the search for the message: {failure}", failure.scope, failure.code)
    unknown = AmbiguousSend(f"the search for the message in Slack failed: {failure}")
    unknown.retry_after = failure.retry_after
    return unknown


def silent_logger() -> logging.Logger:
    """Return a logger that logs nothing: the library would log users' messages and addresses with tickets."""
    return logging.Logger("slack_sdk", logging.CRITICAL + 1)


def make_client(token: str, base_url: str = "") -> AsyncWebClient:
    """Return a client that never retries by itself.

    The library's own handlers would post a message twice after a broken connection. The caller waits for rate limits
    (docs/invariants.md: one layer retries).
    """
    client = AsyncWebClient(
        token, base_url=base_url or BASE_URL, timeout=CALL_SECONDS, retry_handlers=[], logger=silent_logger()
    )
    if URL(client.base_url).host in LOCAL_NAMES:
        client.proxy = None  # the library would use the environment's proxy even for local servers
    return client


async def call_slack(call: Awaitable[AsyncSlackResponse], *, token: str = "", optional: bool = False) -> Fields:
    """Await a call and return the fields of the answer; raises a ``SendFailure``."""
    with slack_errors(token=token, optional=optional):
        return cast("Fields", (await call).data)


@contextmanager
def slack_errors(*, token: str = "", optional: bool = False) -> Iterator[None]:
    """Translate the library's errors into a ``SendFailure`` that quotes no messages or tokens."""
    try:
        yield
    except SlackApiError as error:
        response = error.response
        if not isinstance(response, AsyncSlackResponse):
            raise AmbiguousSend("Slack's answer could not be read") from None
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = response.data if isinstance(response.data, dict) else {}
        retry_after = headers.get("retry-after", "")
        raise answer_failure(response.status_code, answer, retry_after, token=token, optional=optional) from None
    except ClientConnectorError as error:
        raise NotDispatched(f"Slack cannot be reached ({type(error).__name__})") from None
    except (ClientError, SlackClientError, TimeoutError, OSError) as error:
        raise AmbiguousSend(f"the connection to Slack broke ({type(error).__name__})") from None
