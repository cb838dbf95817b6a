"""A tab of the dashboard in the words of who works there: buttons, links, rows, and what a page says of a change."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Locator, Page, expect

from tests.support.dashboard import Dashboard, Tab
from tests.support.page_actions import THINGS, Recorder
from tests.support.populated import Populated


def about(*pages: str) -> frozenset[str]:
    """Return those of the actions whose paths begin so, up to the end of a word."""
    ends = tuple(f"POST {page}{end}" for page in pages for end in ("", "/"))
    return frozenset(one for one in THINGS if one in ends or one.startswith(ends[1::2]))


TOKENS = about("/agents/tokens")
AGENTS = about("/agents", "/agent") - TOKENS
MEMORY = about("/memory")
SKILLS = about("/skills")
CONVERSATIONS = about("/conversations")
WITHOUT_SCRIPT = about("/schedules/preview")
SCHEDULES = about("/schedules") - WITHOUT_SCRIPT
WEBHOOKS = about("/webhooks")
SETTINGS = about("/settings")
CONNECTORS = about("/accounts/connectors")
PEOPLE = about("/accounts/pairings", "/accounts/people")
CLIENTS = about("/accounts/clients")
ACCOUNTS = about("/accounts") - CONNECTORS - PEOPLE - CLIENTS
TESTED = (
    *(AGENTS, TOKENS, MEMORY, SKILLS, CONVERSATIONS, SCHEDULES, WITHOUT_SCRIPT, WEBHOOKS, SETTINGS),
    *(ACCOUNTS, CONNECTORS, PEOPLE, CLIENTS),
)
"""The actions by who does them: each is asked of one test."""


@dataclass
class Desk:
    """A tab of a dashboard."""

    board: Dashboard
    tab: Tab

    @property
    def page(self) -> Page:
        """The page."""
        return self.tab.page

    @property
    def main(self) -> Locator:
        """The page without what is on all of them."""
        return self.page.locator("#main")

    @property
    def at(self) -> Populated:
        """The Maestro."""
        return self.board.at

    async def open(self, path: str) -> None:
        """Go to a page that there is."""
        answer = await self.page.goto(self.at.home + path)
        assert answer is not None
        assert answer.status < 400, f"{path}: {answer.status}"

    async def follow(self, name: str | re.Pattern[str], within: Locator | None = None) -> None:
        """Follow a link."""
        await (within or self.main).get_by_role("link", name=name, exact=True).first.click()

    async def press(self, name: str | re.Pattern[str], within: Locator | None = None) -> None:
        """Press a button, by all of its name or by a pattern."""
        await (within or self.main).get_by_role("button", name=name, exact=True).click()

    async def unfold(self, words: str, within: Locator | None = None) -> None:
        """Open what is folded."""
        await (within or self.main).locator("summary", has_text=re.compile(f"^{re.escape(words)}")).first.click()

    def row(self, words: str) -> Locator:
        """Return the row of a table that has these words."""
        return self.main.locator("tr").filter(has_text=words)

    async def said(self, words: str) -> None:
        """Expect that the page says what was done."""
        await expect(self.page.get_by_role("status").filter(has_text=words)).to_be_visible()

    async def warned(self, words: str) -> None:
        """Expect that the page says why something was not done."""
        await expect(self.page.get_by_role("alert").filter(has_text=words)).to_be_visible()

    async def has(self, words: str) -> None:
        """Expect that the page tells something."""
        await expect(self.main).to_contain_text(words)

    async def download(self, name: str) -> str:
        """Follow a link to a file, and return its text."""
        async with self.page.expect_download() as coming:
            await self.follow(name)
        path = await (await coming.value).path()
        return path.read_text(encoding="utf-8-sig")


async def fill(form: Locator, **fields: str) -> None:
    """Type into the fields of a form, by their names."""
    for name, text in fields.items():
        await form.locator(f"[name={name}]").fill(text)


@asynccontextmanager
async def desk(
    board: Dashboard, actions: frozenset[str], *, refusals: Sequence[int] = (), **profile: Any
) -> AsyncIterator[Desk]:
    """Open a tab; after the block all the actions were done, and its console told of nothing but these refusals."""
    recorder = Recorder(actions)
    async with board.tab(**profile) as tab:
        recorder.watch(tab.page.context)
        yield Desk(board, tab)
        assert await tab.page.locator("img[src=x]").count() == 0
        assert await tab.page.title() != "broken"
        for status in refusals:
            tab.forgive(status)
    assert recorder.left == set()
