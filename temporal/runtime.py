"""Prepares the SDK for the process: what its native part logs, and which work it skips."""

import logging

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from temporal.activations import skip_visits
from temporal.failures import ExpectedEnds

QUIET = "ERROR"
OF_STEPS = ("temporalio.activity", "temporalio.worker._activity")
"""The loggers that tell how steps ended."""


def configure_sdk() -> None:
    """Keep the SDK from warning of every retry and from work without use, before the first client of the process.

    It writes to standard error, in colour, whatever our log's form is; what people need to know of the connection is
    told by ``temporal.client``, once for each change. How a step ended is told by the journal, in one line.
    """
    quiet = TelemetryFilter(core_level=QUIET, other_level=QUIET)
    runtime = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet)))
    Runtime.set_default(runtime, error_if_already_set=False)
    skip_visits()
    for name in OF_STEPS:
        logging.getLogger(name).addFilter(ExpectedEnds())
