"""The result of a consistency check of an installation."""

from collections.abc import Iterable

from maestro.domain.values import Value


class Finding(Value):
    """A contradiction between parts of an installation: where it is, what is wrong, and the fix.

    ``repairable`` means that `maestro fsck --repair` removes it, because the right value follows from other rows.
    """

    check: str
    subject: str
    problem: str
    fix: str
    repairable: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the finding in a second check."""
        return self.check, self.subject


class ConsistencyReport(Value):
    """All findings, the names of the checks that ran, and why others could not."""

    ok: bool
    findings: tuple[Finding, ...]
    checks: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()


def confirm_findings(first: Iterable[Finding], second: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that a second check confirms, because one check may have met work under way."""
    before = {finding.key for finding in first}
    return tuple(finding for finding in second if finding.key in before)
