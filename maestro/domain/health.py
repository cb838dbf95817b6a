"""Health, readiness and diagnosis of a process."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Protocol

from maestro.domain.values import Value

OK = "ok"
NOT_READY = "not ready"

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format, in the version that every collector reads."""


class Liveness(Value):
    """The process answers."""

    status: str = OK


class Readiness(Value):
    """Each part with ``"ok"`` or its problem; ``status`` is ``"ok"`` when all are."""

    status: str
    checks: Mapping[str, str]

    @classmethod
    def of(cls, checks: Mapping[str, str]) -> "Readiness":
        """Sum up the checks."""
        ready = all(state == OK for state in checks.values())
        return cls(status=OK if ready else NOT_READY, checks=checks)

    @property
    def http_status(self) -> HTTPStatus:
        """200 when everything is ok, else 503."""
        return HTTPStatus.OK if self.status == OK else HTTPStatus.SERVICE_UNAVAILABLE


class Health(Protocol):
    """Knows whether the parts of a process do their work."""

    async def checks(self) -> Mapping[str, str]:
        """Return ``"ok"`` or the problem, in words for an operator, by part.

        The parts are ``store``, ``temporal``, ``worker`` and, where there are any, ``connectors``.
        """
        ...


class Metrics(Protocol):
    """What a process counts and measures."""

    def render(self, checks: Mapping[str, str]) -> bytes:
        """Return everything in Prometheus' text format, the checks of ``/readyz`` included; reads the store."""
        ...


@dataclass(frozen=True)
class ProcessHealth:
    """What a process says of itself when it is asked."""

    health: Health
    metrics: Metrics


class DiagnosisLevel(StrEnum):
    """How bad it is; only ``broken`` keeps Maestro from its work."""

    FINE = "fine"
    NOTE = "note"
    BROKEN = "broken"


class Diagnosis(Value):
    """One check: its name, what was found, and what to do about it (empty where nothing is to be done)."""

    check: str
    verdict: DiagnosisLevel
    found: str
    fix: str = ""
