"""What the SDK's native part says by itself."""

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

QUIET = "ERROR"


def quieten() -> None:
    """Keep the SDK from warning of every retry, once for the process and before its first client.

    It writes to standard error, in colour, whatever our log's form is; what people need to know of the connection is
    told by ``temporal.client``, once for each change.
    """
    quiet = TelemetryFilter(core_level=QUIET, other_level=QUIET)
    runtime = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet)))
    Runtime.set_default(runtime, error_if_already_set=False)
