"""Accepts messages: the only entry for them (docs/invariants.md: durable before ack)."""

from maestro.intake.commands import UNSAID
from maestro.intake.messages import AccountIntake, Intake, IntakeRules

__all__ = ["UNSAID", "AccountIntake", "Intake", "IntakeRules"]
