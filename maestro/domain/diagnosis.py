"""What a check of an installation found: one line for people, with the fix where something is wrong."""

from enum import StrEnum

from maestro.domain.values import Value


class Verdict(StrEnum):
    """How bad it is; only ``broken`` keeps Maestro from its work."""

    FINE = "fine"
    NOTE = "note"
    BROKEN = "broken"


class Diagnosis(Value):
    """One check: its name, what was found, and what to do about it (empty where nothing is to be done)."""

    check: str
    verdict: Verdict
    found: str
    fix: str = ""
