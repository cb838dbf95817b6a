"""Accepts messages: the only entry for them (docs/invariants.md: durable before ack)."""

from maestro.intake.control_words import UNSAID
from maestro.intake.messages import AccountIntake, Intake, IntakeRules

__all__ = ["UNSAID", "AccountIntake", "Intake", "IntakeRules"]
