"""Accepts messages: the only entry for them (docs/invariants.md: durable before ack)."""

from maestro.intake.commands import UNSAID
from maestro.intake.messages import Intake, IntakeRules

__all__ = ["UNSAID", "Intake", "IntakeRules"]
