"""Configurations with something taken out: what is wrong with them, or what a command does not need."""

from collections.abc import Iterable
from typing import Any

from maestro.settings.keys import Location


def leave_out(tree: dict[str, object], locations: Iterable[Location]) -> None:
    """Take these places out of the tree, each with the nearest thing above it where it is itself not there.

    A key that is missing takes the entry with it that lacks it. If nothing can be taken out, everything is.
    """
    found = [place for location in locations if (place := _nearest(tree, location))]
    # From the end of a list to its beginning: what is gone must not move what is still to go.
    for place in sorted(set(found), key=_by_position, reverse=True):
        _remove(tree, place)
    if not found:
        tree.clear()


def without_accounts(tree: dict[str, object]) -> dict[str, object]:
    """Return a configuration that says nothing of accounts at providers of models."""
    llm = tree.get("llm")
    if not isinstance(llm, dict):
        return tree
    return {**tree, "llm": {name: value for name, value in llm.items() if name != "accounts"}}


def _nearest(tree: object, location: Location) -> Location:
    """The longest beginning of the location that exists."""
    for depth, part in enumerate(location):
        if not _has(tree, part):
            return location[:depth]
        tree = tree[part]  # type: ignore[index] # it has that part
    return location


def _has(node: object, part: str | int) -> bool:
    if isinstance(node, dict):
        return part in node
    return isinstance(node, list) and isinstance(part, int) and part < len(node)


def _remove(tree: Any, location: Location) -> None:
    *above, last = location
    for part in above:
        if not _has(tree, part):
            return
        tree = tree[part]
    if _has(tree, last):
        del tree[last]


def _by_position(location: Location) -> tuple[tuple[int, str], ...]:
    return tuple((part, "") if isinstance(part, int) else (0, part) for part in location)
