"""What the SDK's native part says by itself."""

import logging

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from temporal.failures import ExpectedEnds

QUIET = "ERROR"
OF_STEPS = ("temporalio.activity", "temporalio.worker._activity")
"""The loggers that tell how steps ended."""


def quieten() -> None:
    """Keep the SDK from warning of every retry, once for the process and before its first client.

    It writes to standard error, in colour, whatever our log's form is; what people need to know of the connection is
    told by ``temporal.client``, once for each change. How a step ended is told by the journal, in one line.
    """
    quiet = TelemetryFilter(core_level=QUIET, other_level=QUIET)
    runtime = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet)))
    Runtime.set_default(runtime, error_if_already_set=False)
    for name in OF_STEPS:
        logging.getLogger(name).addFilter(ExpectedEnds())
