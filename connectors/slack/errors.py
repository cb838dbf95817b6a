"""What goes wrong with a call of Slack, told apart by what it means for whoever called."""

from datetime import timedelta

from connectors.outcomes import (
    AccountRefused,
    AmbiguousSend,
    FetchFailure,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
    RetryableSend,
    Scope,
    SendFailure,
)
from connectors.slack.config import BOT_TOKEN
from maestro.domain.errors import MaestroError

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


class SlackTrouble(MaestroError):
    """The base of what a call of Slack can end with."""

    public = "Slack did not do what it was asked."


class Unreachable(SlackTrouble):
    """Slack was surely not asked."""


class Unsure(SlackTrouble):
    """Slack may or may not have done it."""


class Busy(SlackTrouble):
    """Slack did nothing and asked to come back after ``after``."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"Slack asked to wait {after.total_seconds():g} s")
        self.after = after


class Refused(SlackTrouble):
    """Slack said no, for the reason ``code``."""

    def __init__(self, code: str, needed: str = "") -> None:
        super().__init__(f"Slack says {code}" + (f": the scope {needed} is missing" if needed else ""))
        self.code = code
        self.needed = needed


def verdict(status: int, answer: dict[str, object], retry_after: str) -> SlackTrouble:
    """Return what an answer that is no success means; ``retry_after`` is the header, empty where there is none."""
    code = str(answer.get("error") or "")
    if status == 429 or code in BUSY:
        return Busy(timedelta(seconds=int(retry_after)) if retry_after.isdecimal() else AFTER_ALL)
    if status >= 500 or not code or code in UNSURE:
        return Unsure(f"Slack answered {status}" + (f" and says {code}" if code else ""))
    return Refused(code, str(answer.get("needed") or ""))


def refused_account(trouble: SlackTrouble, token: str) -> AccountRefused | None:
    """Return what an operator is to be told when nobody else can help, None when this is no such trouble.

    ``token`` is the name of the setting with the token that Slack was shown.
    """
    if not isinstance(trouble, Refused) or trouble.code not in ACCOUNT | DENIED:
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
    if isinstance(trouble, Unreachable):
        return NotDispatched(str(trouble))
    if isinstance(trouble, Busy):
        return RetryableSend(str(trouble), trouble.after)
    if isinstance(trouble, Refused):
        scope = _scope(trouble.code, spare=spare)
        told = refused_account(trouble, BOT_TOKEN) if scope is Scope.ACCOUNT else None
        return PermanentSend(str(told or trouble), scope)
    return AmbiguousSend(str(trouble))


def search_failure(trouble: SlackTrouble) -> SendFailure:
    """Return what the trouble means for a message of which nobody knows whether it was sent: no answer is no no.

    Who may not look never knows; the message stays in doubt.
    """
    if isinstance(trouble, Refused):
        return PermanentSend(
            f"Slack does not say whether it has the message: {trouble}", _scope(trouble.code, spare=True)
        )
    failure = AmbiguousSend(f"Slack could not be asked whether it has the message: {trouble}")
    failure.retry_after = trouble.after if isinstance(trouble, Busy) else None
    return failure


def fetch_failure(trouble: SlackTrouble) -> FetchFailure:
    """Return what the trouble means for a file that was to be fetched."""
    if isinstance(trouble, Refused):
        return PermanentFetch(str(trouble))
    return RetryableFetch(str(trouble), trouble.after if isinstance(trouble, Busy) else None)


def _scope(code: str, *, spare: bool) -> Scope:
    """Return what is broken; an account that only lacks a scope it can do without is to be spared."""
    if code in ACCOUNT:
        return Scope.MESSAGE if spare and code == MISSING_SCOPE else Scope.ACCOUNT
    return Scope.CHANNEL if code in CHANNEL | DENIED else Scope.MESSAGE
