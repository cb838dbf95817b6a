"""The installation that ``maestro doctor`` examines, and functions that build its diagnoses."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from maestro.domain.health import Diagnosis, DiagnosisLevel
from maestro.installation.data_folder import FolderHolder
from maestro.settings import Settings, Survey
from temporal.server_process import ServerRecord


@dataclass(frozen=True)
class Examined:
    """The installation that ``maestro doctor`` examines.

    ``holder`` is the process that uses the data folder, ``server`` the running embedded Temporal server of the folder.
    """

    survey: Survey
    environment: Mapping[str, str]
    holder: FolderHolder = field(default_factory=FolderHolder)
    server: ServerRecord | None = None

    @property
    def settings(self) -> Settings:
        """The settings, without the invalid entries."""
        return self.survey.settings


def fine(check: str, found: str) -> Diagnosis:
    """Return a diagnosis that needs no action."""
    return Diagnosis(check=check, verdict=DiagnosisLevel.FINE, found=found)


def note(check: str, found: str, fix: str = "") -> Diagnosis:
    """Return a diagnosis for information; ``fix`` is an optional action."""
    return Diagnosis(check=check, verdict=DiagnosisLevel.NOTE, found=found, fix=fix)


def broken(check: str, found: str, fix: str) -> Diagnosis:
    """Return a diagnosis of a fault that keeps Maestro from working."""
    return Diagnosis(check=check, verdict=DiagnosisLevel.BROKEN, found=found, fix=fix)
