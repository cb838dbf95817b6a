"""Moments that people type: with a zone, and such that every other zone has them too."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime

FIRST_YEAR = 1970
LAST_YEAR = 9998
"""A moment of a year beyond may be none at all in another zone."""


def _sensible(moment: datetime) -> datetime:
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"expected a time from {FIRST_YEAR} to {LAST_YEAR}")
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_sensible)]


def in_order(since: datetime | None, until: datetime | None) -> None:
    """Raise ``ValueError`` for a time that ends before it begins; an open end is none."""
    if since is not None and until is not None and since > until:
        raise ValueError("since: expected a time that is not after until")
