"""``maestro doctor`` as a script runs it, and what it says of each check."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from maestro.domain.health import Diagnosis, DiagnosisLevel
from tests.support.command import COMMAND, PATIENCE, Ended, maestro


@dataclass(frozen=True)
class Report:
    """Its exit code and its findings."""

    code: int
    ok: bool
    checks: Sequence[Diagnosis]
    text: str

    def of(self, check: str) -> Diagnosis:
        """Return the only line of a check."""
        found = self.all_of(check)
        assert len(found) == 1, self.text
        return found[0]

    def all_of(self, check: str) -> list[Diagnosis]:
        """Return all lines of a check."""
        return [diagnosis for diagnosis in self.checks if diagnosis.check == check]

    @property
    def broken(self) -> list[str]:
        """The names of the checks that found something broken."""
        return [diagnosis.check for diagnosis in self.checks if diagnosis.verdict is DiagnosisLevel.BROKEN]

    def is_broken(self, check: str, *words: str) -> None:
        """Require that this and nothing else is broken, that cause and fix contain the words, and the exit code 1."""
        assert set(self.broken) == {check}, self.text
        assert (self.code, self.ok) == (1, False)
        said = [f"{diagnosis.found} -> {diagnosis.fix}" for diagnosis in self.all_of(check)]
        assert all(diagnosis.fix for diagnosis in self.all_of(check) if diagnosis.verdict is DiagnosisLevel.BROKEN)
        missing = [word for word in words if not any(word in line for line in said)]
        assert not missing, (missing, said)

    def is_fine(self) -> None:
        """Require that nothing is broken, and the exit code 0."""
        assert (self.broken, self.code, self.ok) == ([], 0, True), self.text


async def doctor(
    folder: Path, *options: str, environment: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> Report:
    """Run ``maestro doctor --json`` in a folder; ``before`` stands before the command."""
    arguments = ("doctor", "--json", *options)
    if before:
        ended = await installed(*before, str(COMMAND), *arguments, folder=folder, environment=environment)
    else:
        ended = await maestro(*arguments, folder=folder, environment=environment)
    assert ended.errors == ""
    findings = json.loads(ended.output)
    checks = [Diagnosis.model_validate(check) for check in findings["checks"]]
    return Report(ended.code, findings["ok"], checks, ended.output)


async def installed(*command: str, folder: Path, environment: Mapping[str, str] | None) -> Ended:
    """Run the installed command to its end, with what stands before it."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode is not None
    return Ended(process.returncode, output.decode(), errors.decode())
