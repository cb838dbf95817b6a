"""The settings that hold now, for parts that ask at each use: what is set while Maestro runs counts from then on."""

from collections.abc import Callable
from typing import TypeVar

from maestro.settings.model import Settings

Rules = TypeVar("Rules")


class CurrentSettings:
    """Settings that may be replaced by others as a whole; to ask costs nothing, and any thread may."""

    def __init__(self, settings: Settings) -> None:
        self._current = settings

    def current(self) -> Settings:
        """Return the settings that hold now; the caller must not keep them."""
        return self._current

    def of(self, rules: Callable[[Settings], Rules]) -> Callable[[], Rules]:
        """Return what a part asks at each use for the rules that it works by; they are made anew after a change."""
        made: tuple[Settings, Rules] | None = None

        def ask() -> Rules:
            nonlocal made
            settings, known = self._current, made
            if known is None or known[0] is not settings:
                known = made = (settings, rules(settings))
            return known[1]

        return ask
