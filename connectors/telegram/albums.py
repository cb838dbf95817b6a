"""Albums: several files that a person sends as one come as one update each, and are one message."""

from collections.abc import Iterator, Sequence

from connectors.telegram.api import Update

Group = Sequence[Update]
"""Updates that are one message: the parts of an album, or one update alone."""

OPEN_SECONDS = 1.0
"""How long after its last part an album may get another one."""
MOST_LOOKED_AFTER = 1_000


def groups(updates: Sequence[Update]) -> list[Group]:
    """Return updates with the parts of each album together, in the place of its first part."""
    found: dict[object, list[Update]] = {}
    for update in updates:
        found.setdefault(_album(update) or update["update_id"], []).append(update)
    return list(found.values())


def settled(found: Sequence[Group], unfinished: Sequence[Group]) -> Sequence[Group]:
    """Return the groups before the first unfinished one that have no part behind its first.

    They, and no others, may be confirmed: Telegram confirms everything up to an update, or nothing.
    """
    end = next((at for at, group in enumerate(found) if group in unfinished), len(found))
    while end < len(found) and any(_last(group) > _first(found[end]) for group in found[:end]):
        end -= 1
    return found[:end]


class OpenAlbums:
    """Remembers when which album got its last part."""

    def __init__(self) -> None:
        self._grown: dict[object, tuple[int, float]] = {}

    def among(self, found: Sequence[Group], now: float) -> list[Group]:
        """Return the albums that may get another part; ``now`` is in seconds, of a clock that never goes back."""
        return [group for group in found if self._is_open(group, now)]

    def _is_open(self, group: Group, now: float) -> bool:
        album = _album(group[0])
        if album is None:
            return False
        count, since = self._grown.get(album, (0, now))
        if count != len(group):
            if len(self._grown) >= MOST_LOOKED_AFTER:
                self._grown.clear()
            self._grown[album] = len(group), now
            return True
        return now - since < OPEN_SECONDS


def _album(update: Update) -> tuple[str, str] | None:
    """Return what is the same for all parts of an album, None for what is no part of one."""
    return next(((chat, album) for chat, album in _albums(update)), None)


def _albums(update: Update) -> Iterator[tuple[str, str]]:
    for kind in ("message", "channel_post"):
        message = update.get(kind)
        if isinstance(message, dict) and isinstance(message.get("media_group_id"), str):
            chat = message.get("chat")
            yield str(chat.get("id") if isinstance(chat, dict) else chat), message["media_group_id"]


def _first(group: Group) -> int:
    return int(group[0]["update_id"])


def _last(group: Group) -> int:
    return int(group[-1]["update_id"])
