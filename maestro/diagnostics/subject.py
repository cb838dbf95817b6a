"""What is examined, and the words in which a check says what it found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from maestro.domain.health import Diagnosis, DiagnosisLevel
from maestro.installation.data_folder import FolderHolder
from maestro.settings import Settings, Survey
from temporal.server_process import ServerRecord


@dataclass(frozen=True)
class Examined:
    """An installation that doctor examines.

    ``holder`` has its data folder now, ``server`` is the embedded Temporal server started there, if it lives.
    """

    survey: Survey
    environment: Mapping[str, str]
    holder: FolderHolder = field(default_factory=FolderHolder)
    server: ServerRecord | None = None

    @property
    def settings(self) -> Settings:
        """The configuration as far as it can be used."""
        return self.survey.settings


def fine(check: str, found: str) -> Diagnosis:
    """Nothing is to be done."""
    return Diagnosis(check=check, verdict=DiagnosisLevel.FINE, found=found)


def note(check: str, found: str, fix: str = "") -> Diagnosis:
    """Something to know; ``fix`` is what may be done about it."""
    return Diagnosis(check=check, verdict=DiagnosisLevel.NOTE, found=found, fix=fix)


def broken(check: str, found: str, fix: str) -> Diagnosis:
    """Something keeps Maestro from its work."""
    return Diagnosis(check=check, verdict=DiagnosisLevel.BROKEN, found=found, fix=fix)
