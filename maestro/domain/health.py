"""Health, readiness and diagnosis of a process."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Protocol

from maestro.domain.values import Value

OK = "ok"
NOT_READY = "not ready"


@dataclass(frozen=True, slots=True)
class QueueSlots:
    """How many activities of one queue run in this process (``used``), and how many may run at once (``limit``)."""

    queue: str
    kind: str
    used: int
    limit: int


METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format, in the version that every collector reads."""


class Liveness(Value):
    """The response of the health endpoint of a running process."""

    status: str = OK


class Readiness(Value):
    """The state of each part of a process: ``"ok"`` or its problem; ``status`` is ``"ok"`` if all parts are."""

    status: str
    checks: Mapping[str, str]

    @classmethod
    def from_checks(cls, checks: Mapping[str, str]) -> "Readiness":
        """Return the readiness of a process from the states of its parts."""
        ready = all(state == OK for state in checks.values())
        return cls(status=OK if ready else NOT_READY, checks=checks)

    @property
    def http_status(self) -> HTTPStatus:
        """HTTP status 200 if all parts are ok, else 503."""
        return HTTPStatus.OK if self.status == OK else HTTPStatus.SERVICE_UNAVAILABLE


class Health(Protocol):
    """The health checks of a process."""

    async def checks(self) -> Mapping[str, str]:
        """Return the state of each part: ``"ok"``, or its problem as a text for operators.

        The parts are ``store``, ``temporal``, ``worker`` and, in a process with connectors, ``connectors``.
        """
        ...


class Metrics(Protocol):
    """The metrics of a process."""

    def render(self, checks: Mapping[str, str]) -> bytes:
        """Return all metrics in Prometheus' text format, with ``checks`` among them; reads the store."""
        ...


@dataclass(frozen=True)
class ProcessHealth:
    """The health checks and the metrics of a process, for its HTTP endpoints."""

    health: Health
    metrics: Metrics


class DiagnosisLevel(StrEnum):
    """The severity of a diagnosis; only ``broken`` prevents Maestro from working."""

    FINE = "fine"
    NOTE = "note"
    BROKEN = "broken"


class Diagnosis(Value):
    """The result of one diagnostic check: its name, the finding, and the fix (empty if none is necessary)."""

    check: str
    verdict: DiagnosisLevel
    found: str
    fix: str = ""
