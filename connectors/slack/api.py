"""The one way to Slack's Web API: each call is made once, and what goes wrong is told apart."""

import logging
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from aiohttp import ClientConnectorError, ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from yarl import URL

from connectors.slack.errors import SlackTrouble, Unreachable, Unsure, verdict
from maestro.domain.hosts import LOCAL_NAMES

BASE_URL = AsyncWebClient.BASE_URL
CALL_SECONDS = 20
"""How long one call may take."""

Fields = Mapping[str, Any]


def quiet() -> logging.Logger:
    """Return a logger that says nothing: the library logs what people wrote, and the addresses of sockets with tickets.

    What an operator must know of is reported by us.
    """
    return logging.Logger("slack_sdk", logging.CRITICAL + 1)


def client(token: str, base_url: str = "") -> AsyncWebClient:
    """Return a client that never tries twice by itself.

    The library's own handlers post a message again after a cut connection, and so twice; waiting for a rate limit is
    the caller's business, who may have better to do (docs/invariants.md: one layer retries).
    """
    made = AsyncWebClient(token, base_url=base_url or BASE_URL, timeout=CALL_SECONDS, retry_handlers=[], logger=quiet())
    if URL(made.base_url).host in LOCAL_NAMES:
        made.proxy = None  # the library takes one from the environment without asking for whom it is
    return made


async def called(call: Awaitable[AsyncSlackResponse]) -> Fields:
    """Make a call and return the members of the answer; raises a ``SlackTrouble``."""
    with translated():
        return cast("Fields", (await call).data)


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the library raises into a ``SlackTrouble``; what it would quote of messages and tokens stays behind."""
    try:
        yield
    except SlackApiError as error:
        raise _verdict(error) from None
    except ClientConnectorError as error:
        raise Unreachable(f"Slack cannot be reached ({type(error).__name__})") from None
    except (ClientError, SlackClientError, TimeoutError, OSError) as error:
        raise Unsure(f"the connection to Slack broke ({type(error).__name__})") from None


def _verdict(error: SlackApiError) -> SlackTrouble:
    response = error.response
    if not isinstance(response, AsyncSlackResponse):
        return Unsure("Slack's answer could not be read")
    headers = {name.lower(): value for name, value in response.headers.items()}
    answer = response.data if isinstance(response.data, dict) else {}
    return verdict(response.status_code, answer, headers.get("retry-after", ""))
