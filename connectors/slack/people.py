"""What people are called: Slack's events name them by id alone."""

import asyncio
import contextlib
from collections.abc import Mapping

from slack_sdk.web.async_client import AsyncWebClient

from connectors.slack.api import Fields, called
from connectors.slack.errors import SlackTrouble

PATIENCE = 1.0
"""Seconds a message waits for its author's name: Slack waits three for our word that we have it."""
MOST = 5_000


class People:
    """Names by id, looked up once; a person whose name cannot be had has none."""

    def __init__(self, web: AsyncWebClient) -> None:
        self._web = web
        self._names: dict[str, str] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    @property
    def names(self) -> Mapping[str, str]:
        """The names that are known."""
        return self._names

    async def meet(self, user: str) -> None:
        """Learn the name of a person, unless that takes too long: then their next message has it."""
        if not user or user in self._names:
            return
        asking = self._asking.get(user)
        if asking is None:
            asking = self._asking[user] = asyncio.create_task(self._ask(user))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(asking)

    async def _ask(self, user: str) -> None:
        try:
            answer = await called(self._web.users_info(user=user))
            if len(self._names) >= MOST:
                self._names.pop(next(iter(self._names)))
            self._names[user] = name_of(answer.get("user") or {})
        except SlackTrouble:
            # A message without a name is still a message.
            self._names[user] = ""
        finally:
            del self._asking[user]


def name_of(user: Fields) -> str:
    """Return what a person is called in the workspace."""
    profile = user.get("profile") or {}
    found = (profile.get("display_name"), profile.get("real_name"), user.get("real_name"), user.get("name"))
    return next((str(name) for name in found if name), "")
