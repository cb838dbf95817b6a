"""The client of Slack's Web API: each call is made once, and its failure is classified."""

import logging
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

from aiohttp import ClientConnectorError, ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from yarl import URL

from connectors.failures import (
    AccountRefused,
    AmbiguousSend,
    FailureScope,
    FetchFailure,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
    RetryableSend,
    SendFailure,
)
from connectors.slack.config import BOT_TOKEN
from maestro.domain.errors import MaestroError
from maestro.domain.hosts import LOCAL_NAMES

NO_THREAD = "thread_not_found"
MISSING_SCOPE = "missing_scope"
ACCOUNT = frozenset(
    {
        *("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "org_login_required"),
        *(MISSING_SCOPE, "not_allowed_token_type", "ekm_access_denied"),
        *("team_access_not_granted", "two_factor_setup_required", "accesslimited", "invalid_token"),
    }
)
"""Errors of which only an operator can get rid of: the token or what it may do."""
CHANNEL = frozenset(
    {
        *("channel_not_found", "not_in_channel", "is_archived", "restricted_action", "messages_tab_disabled"),
        *("restricted_action_read_only_channel", "restricted_action_non_threadable_channel", "user_not_found"),
        *("cannot_dm_bot", "user_disabled", "team_not_found", "channel_is_limited_access", "is_inactive"),
    }
)
"""Errors that every message to the channel would meet; that a thread is locked is none of them."""
DENIED = frozenset({"no_permission", "access_denied"})
"""Errors that are about the channel where one was named, such as one without us, and else about the account."""
UNSURE = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"})
"""Errors after which, by Slack's own words, some of what was asked may have happened."""
BUSY = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})

AFTER_ALL = timedelta(seconds=30)
"""How long we wait when Slack asks us to but does not say for how long."""

BASE_URL = AsyncWebClient.BASE_URL
CALL_SECONDS = 20
"""How long one call may take."""

Fields = Mapping[str, Any]


class SlackTrouble(MaestroError):
    """The base of what a call of Slack can end with."""

    public = "Slack did not do what it was asked."


class SlackUnreachable(SlackTrouble):
    """Slack was surely not asked."""


class SlackUnsure(SlackTrouble):
    """Slack may or may not have done it."""


class SlackBusy(SlackTrouble):
    """Slack did nothing and asked to come back after ``after``."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"Slack asked to wait {after.total_seconds():g} s")
        self.after = after


class SlackRefused(SlackTrouble):
    """Slack said no, for the reason ``code``."""

    def __init__(self, code: str, needed: str = "") -> None:
        super().__init__(f"Slack says {code}" + (f": the scope {needed} is missing" if needed else ""))
        self.code = code
        self.needed = needed


def answer_failure(status: int, answer: dict[str, object], retry_after: str) -> SlackTrouble:
    """Return what an answer that is no success means; ``retry_after`` is the header, empty where there is none."""
    code = str(answer.get("error") or "")
    if status == 429 or code in BUSY:
        return SlackBusy(timedelta(seconds=int(retry_after)) if retry_after.isdecimal() else AFTER_ALL)
    if status >= 500 or not code or code in UNSURE:
        return SlackUnsure(f"Slack answered {status}" + (f" and says {code}" if code else ""))
    return SlackRefused(code, str(answer.get("needed") or ""))


def refused_account(trouble: SlackTrouble, token: str) -> AccountRefused | None:
    """Return what an operator is to be told when nobody else can help, None when this is no such trouble.

    ``token`` is the name of the setting with the token that Slack was shown.
    """
    if not isinstance(trouble, SlackRefused) or trouble.code not in ACCOUNT | DENIED:
        return None
    if trouble.code == MISSING_SCOPE:
        scope = trouble.needed or "it needs"
        return AccountRefused(
            f"the {token} lacks the scope {scope}: add it on the app's page and install the app again"
        )
    if trouble.code in ("account_inactive", "token_revoked", "token_expired"):
        return AccountRefused(f"Slack says {trouble.code}: install the app again and set the new {token}")
    return AccountRefused(f"Slack says {trouble.code}: check the {token}")


def send_failure(trouble: SlackTrouble, *, spare: bool) -> SendFailure:
    """Return what the trouble means for a message that was to be sent.

    ``spare`` is for what needs a scope of its own, files and reactions: without it messages can still be sent.
    """
    if isinstance(trouble, SlackUnreachable):
        return NotDispatched(str(trouble))
    if isinstance(trouble, SlackBusy):
        return RetryableSend(str(trouble), trouble.after)
    if isinstance(trouble, SlackRefused):
        scope = _scope(trouble.code, spare=spare)
        told = refused_account(trouble, BOT_TOKEN) if scope is FailureScope.ACCOUNT else None
        return PermanentSend(str(told or trouble), scope)
    return AmbiguousSend(str(trouble))


def search_failure(trouble: SlackTrouble) -> SendFailure:
    """Return what the trouble means for a message of which nobody knows whether it was sent: no answer is no no.

    Who may not look never knows; the message stays in doubt.
    """
    if isinstance(trouble, SlackRefused):
        return PermanentSend(
            f"Slack does not say whether it has the message: {trouble}", _scope(trouble.code, spare=True)
        )
    failure = AmbiguousSend(f"Slack could not be asked whether it has the message: {trouble}")
    failure.retry_after = trouble.after if isinstance(trouble, SlackBusy) else None
    return failure


def fetch_failure(trouble: SlackTrouble) -> FetchFailure:
    """Return what the trouble means for a file that was to be fetched."""
    if isinstance(trouble, SlackRefused):
        return PermanentFetch(str(trouble))
    return RetryableFetch(str(trouble), trouble.after if isinstance(trouble, SlackBusy) else None)


def _scope(code: str, *, spare: bool) -> FailureScope:
    """Return what is broken; an account that only lacks a scope it can do without is to be spared."""
    if code in ACCOUNT:
        return FailureScope.MESSAGE if spare and code == MISSING_SCOPE else FailureScope.ACCOUNT
    return FailureScope.CHANNEL if code in CHANNEL | DENIED else FailureScope.MESSAGE


def silent_logger() -> logging.Logger:
    """Return a logger that says nothing: the library logs what people wrote, and the addresses of sockets with tickets.

    What an operator must know of is reported by us.
    """
    return logging.Logger("slack_sdk", logging.CRITICAL + 1)


def make_client(token: str, base_url: str = "") -> AsyncWebClient:
    """Return a client that never tries twice by itself.

    The library's own handlers post a message again after a cut connection, and so twice; waiting for a rate limit is
    the caller's business, who may have better to do (docs/invariants.md: one layer retries).
    """
    made = AsyncWebClient(
        token, base_url=base_url or BASE_URL, timeout=CALL_SECONDS, retry_handlers=[], logger=silent_logger()
    )
    if URL(made.base_url).host in LOCAL_NAMES:
        made.proxy = None  # the library takes one from the environment without asking for whom it is
    return made


async def call_slack(call: Awaitable[AsyncSlackResponse]) -> Fields:
    """Make a call and return the members of the answer; raises a ``SlackTrouble``."""
    with slack_errors():
        return cast("Fields", (await call).data)


@contextmanager
def slack_errors() -> Iterator[None]:
    """Turn what the library raises into a ``SlackTrouble``; what it would quote of messages and tokens stays behind."""
    try:
        yield
    except SlackApiError as error:
        raise _api_failure(error) from None
    except ClientConnectorError as error:
        raise SlackUnreachable(f"Slack cannot be reached ({type(error).__name__})") from None
    except (ClientError, SlackClientError, TimeoutError, OSError) as error:
        raise SlackUnsure(f"the connection to Slack broke ({type(error).__name__})") from None


def _api_failure(error: SlackApiError) -> SlackTrouble:
    response = error.response
    if not isinstance(response, AsyncSlackResponse):
        return SlackUnsure("Slack's answer could not be read")
    headers = {name.lower(): value for name, value in response.headers.items()}
    answer = response.data if isinstance(response.data, dict) else {}
    return answer_failure(response.status_code, answer, headers.get("retry-after", ""))
