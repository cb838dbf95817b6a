"""Accepts messages: the only way in (design section 4, row 2)."""

from maestro.intake.control import UNSAID
from maestro.intake.door import AccountIntake, Intake, IntakeRules

__all__ = ["UNSAID", "AccountIntake", "Intake", "IntakeRules"]
