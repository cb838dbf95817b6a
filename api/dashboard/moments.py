"""Moments as they are typed into a form, where nobody types a time zone: UTC, as the pages show them."""

import re

_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def whole(text: str) -> str:
    """Return what was typed as a moment with a zone; a day alone is its beginning, and what is none stays as it is."""
    moment = f"{text}T00:00" if _DAY.fullmatch(text) else text
    return moment if _ZONE.search(moment) else f"{moment}Z"
