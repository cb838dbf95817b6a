"""Accepts messages: the only way in (docs/invariants.md: durable before ack)."""

from maestro.intake.control import UNSAID
from maestro.intake.door import AccountIntake, Intake, IntakeRules

__all__ = ["UNSAID", "AccountIntake", "Intake", "IntakeRules"]
