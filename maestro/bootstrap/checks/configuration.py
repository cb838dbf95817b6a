"""Whether the configuration can be read, and everything that is wrong with it."""

from maestro.bootstrap.checks.subject import Subject, broken, fine
from maestro.domain.diagnosis import Diagnosis

CHECK = "configuration"
FIX = "Correct it; docs/configuration.md lists every key. The other checks go on as if this were left out."


def configuration(subject: Subject) -> list[Diagnosis]:
    """One line for each problem, which names its own fix, or which file counts."""
    survey = subject.survey
    if survey.problems:
        return [broken(CHECK, problem, FIX) for problem in survey.problems]
    if survey.file is None:
        return [fine(CHECK, "no maestro.json here: defaults and environment (`maestro init` writes one)")]
    return [fine(CHECK, f"{survey.file} is in order")]
