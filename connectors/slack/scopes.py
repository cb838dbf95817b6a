"""What a token says of itself: who it is, and which scopes it was given."""

from slack_sdk.web.async_slack_response import AsyncSlackResponse

from connectors.outcomes import AccountRefused
from connectors.slack.config import BOT_TOKEN, SlackOptions
from connectors.slack.receive import Us

SCOPES_HEADER = "x-oauth-scopes"
WRITE, REACT = "chat:write", "reactions:write"
WISHED = ("channels:history", "im:history", "files:read", "users:read")
"""Scopes without which messages are missed, cannot be found again, or have no files and names."""


def us_of(account: str, answer: AsyncSlackResponse) -> Us:
    """Return who a token is; raises ``AccountRefused`` when it is nobody who can post."""
    granted = _granted(answer)
    if granted and WRITE not in granted:
        raise AccountRefused(f"the {BOT_TOKEN} lacks the scope {WRITE}: add it and install the app again")
    if not answer.get("bot_id"):
        raise AccountRefused(f"the {BOT_TOKEN} is a person's: copy the one that begins with xoxb-")
    return Us(account, str(answer["team_id"]), str(answer["user_id"]), str(answer["bot_id"]), str(answer["user"]))


def lacking(answer: AsyncSlackResponse, options: SlackOptions) -> str:
    """Return what an operator is to be told of scopes without which something does not work, "" when all are there."""
    granted = _granted(answer)
    wished = (*WISHED, REACT) if options.ack_reaction else WISHED
    missing = [scope for scope in wished if granted and scope not in granted]
    return f"; it lacks the scopes {', '.join(missing)}" if missing else ""


def _granted(answer: AsyncSlackResponse) -> frozenset[str]:
    """Return the scopes of a token, none where Slack does not say."""
    told = {name.lower(): value for name, value in answer.headers.items()}.get(SCOPES_HEADER, "")
    return frozenset(scope.strip() for scope in told.split(",") if scope.strip())
