"""The intake: the only entry for incoming messages (docs/invariants.md: durable before ack)."""

from maestro.intake.commands import UNSAID
from maestro.intake.messages import AccountIntake, Intake, IntakeRules

__all__ = ["UNSAID", "AccountIntake", "Intake", "IntakeRules"]
