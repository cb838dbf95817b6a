"""Asks Telegram what happened; what is asked for next confirms what came before, so it is stored by then."""

import asyncio
from collections.abc import Sequence
from time import monotonic

from connectors.telegram.albums import OPEN_SECONDS, OpenAlbums, groups, settled
from connectors.telegram.api import Line, Update, translated
from connectors.telegram.errors import Contested, Unsure
from connectors.telegram.inbound import Inbound
from connectors.telegram.persistence import Watcher, persist
from connectors.telegram.receive import KINDS

WAIT_SECONDS = 50
"""How long Telegram may keep us waiting for something to happen."""


class Polling:
    """Asks for as long as it runs.

    It begins without an offset: Telegram knows what was not confirmed. An old offset is never kept, because after a
    quiet week Telegram counts anew, from a number that may be lower.
    """

    def __init__(self, line: Line, inbound: Inbound, watcher: Watcher) -> None:
        self._line = line
        self._inbound = inbound
        self._watcher = watcher
        self._albums = OpenAlbums()
        self._offset: int | None = None
        self._alone = False
        self._wait = 0

    async def run(self) -> None:
        """Ask until cancelled; raises ``AccountRefused``."""
        while True:
            await persist(self._look, self._watcher)

    async def _look(self) -> None:
        """Ask once and take in what came; the next one confirms that, and nothing that was not taken in."""
        wait, self._wait = self._wait, 0  # after trouble an answer is to come at once, so that it is known to be over
        await self._be_alone()
        updates = await self._asked(wait)
        await self._take(updates)
        await self._watcher.well()
        self._wait = WAIT_SECONDS

    async def _be_alone(self) -> None:
        """End the webhook of an earlier life: beside one nobody may ask. What waits for it waits for us."""
        if not self._alone:
            with translated():
                await self._line.delete_webhook(drop_pending_updates=False)
            self._alone = True

    async def _asked(self, wait: int) -> Sequence[Update]:
        try:
            updates = await self._line.updates(self._offset, wait, KINDS)
        except Contested:
            # Only a whole wait shows that nobody else asks any more: a short look would take the other one's place,
            # which would take ours back, without an end and without a pause.
            self._alone, self._wait = False, WAIT_SECONDS
            raise
        numbered = [one for one in updates if isinstance(one.get("update_id"), int)]
        if updates and not numbered:
            raise Unsure("Telegram's answer could not be read: no update in it has a number")
        return numbered

    async def _take(self, updates: Sequence[Update]) -> None:
        found = groups(updates)
        unfinished = self._albums.among(found, monotonic())
        ready = settled(found, unfinished)
        for group in ready:
            await self._inbound.take(group)
        if len(ready) < len(found):
            self._offset = int(found[len(ready)][0]["update_id"])
            # Nothing of an album is confirmed yet, so its next parts come together with those that are here.
            await asyncio.sleep(OPEN_SECONDS)
        elif updates:
            self._offset = max(int(one["update_id"]) for one in updates) + 1
