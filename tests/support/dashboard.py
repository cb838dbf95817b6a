"""The dashboard of a populated Maestro in a browser, for tests that do what its pages offer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Page

from connectors.base import FailureScope, PermanentSend
from tests.support.instance import Instance
from tests.support.page_actions import Recorder
from tests.support.populated import KEY, PASSWORD, Populated, populated

REFUSED = "Failed to load resource: the server responded with a status of {status}"
"""What a console says of an answer that a test asks for on purpose."""


@dataclass
class Tab:
    """A page of a browser profile of its own; ``troubles`` is what its console complained of."""

    page: Page
    home: str
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))

    async def open(self, path: str) -> None:
        """Go to a page of the dashboard."""
        await self.page.goto(self.home + path)

    async def log_in(self, password: str = PASSWORD) -> None:
        """Begin a session as programs do; what a test of the form itself does with two more pages."""
        answer = await self.page.request.post(f"{self.home}/login", data={"password": password})
        assert answer.ok, await answer.text()

    async def drawn(self) -> None:
        """Wait until the page is drawn: a browser drops keys that come before."""
        await self.page.get_by_role("heading", level=1).click(trial=True)

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            await self.page.keyboard.press(key)

    def forgive(self, status: int) -> None:
        """Take back that the console told of an answer with this status."""
        words = REFUSED.format(status=status)
        assert any(trouble.startswith(words) for trouble in self.troubles), self.troubles
        self.troubles[:] = [trouble for trouble in self.troubles if not trouble.startswith(words)]

    def _note(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.troubles.append(said.text)


@dataclass
class Dashboard:
    """One with its browser; ``recorder`` notes what the pages changed."""

    at: Populated
    chromium: Browser
    recorder: Recorder

    @property
    def maestro(self) -> Instance:
        """What is behind the pages."""
        return self.at.instance

    @asynccontextmanager
    async def tab(self, password: str = PASSWORD, **profile: Any) -> AsyncIterator[Tab]:
        """Open a profile, logged in unless there is no password; its console must have had nothing to say."""
        context = await self.chromium.new_context(**profile)
        self.recorder.watch(context)
        tab = Tab(await context.new_page(), self.at.home)
        if password:
            await tab.log_in(password)
        yield tab
        assert tab.troubles == []
        await context.close()

    async def say(self, channel: str, text: str) -> str:
        """Have a person write in a channel of their own, and return the job."""
        async with self.maestro.client(channel, user_name="Grace", api_key=KEY) as client:
            await client.say(text)
        [job] = self.maestro.jobs(channel)
        return str(job["id"])

    async def fail(self, channel: str, *texts: str) -> list[str]:
        """Have a person write in a channel of their own what makes each job fail, and return the jobs."""
        async with self.maestro.client(channel, user_name="Grace", api_key=KEY) as client:
            for number, text in enumerate(texts, start=1):
                await client.say(text)
                await self.maestro.ended(channel, "failed", number)
        return [str(job["id"]) for job in self.maestro.jobs(channel)]

    async def undelivered(self, channel: str, *texts: str) -> list[str]:
        """Have jobs fail when their answers, which are paid for, are sent; return them."""
        gone = PermanentSend(f"{channel} is gone", scope=FailureScope.MESSAGE)
        self.maestro.taps.failures[channel].extend(gone for _ in texts)
        return await self.fail(channel, *texts)


@asynccontextmanager
async def dashboard(
    chromium: Browser, folder: Path, actions: frozenset[str] = frozenset(), **settings: Any
) -> AsyncIterator[Dashboard]:
    """Run a populated Maestro behind a browser; ``actions`` are those that are looked for."""
    async with populated(folder, **settings) as at:
        yield Dashboard(at, chromium, Recorder(actions))
