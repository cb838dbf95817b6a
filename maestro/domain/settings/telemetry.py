"""The settings of what Maestro tells other systems about its work, and of how long it keeps it."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from maestro.domain.settings.section import NO_SECRET, HttpUrl, Section, live, setting


def _check_trace_url(url: str) -> str:
    if url and "{traceId}" not in url:
        raise ValueError("expected an address with {traceId} where the id of the trace belongs")
    return url


TraceUrl = Annotated[HttpUrl, AfterValidator(_check_trace_url)]
Ratio = Annotated[float, Field(ge=0, le=1)]


class TelemetrySettings(Section):
    """Traces for OpenTelemetry (docs/howto/trace-a-message.md)."""

    enabled: bool = setting(
        False,
        "whether the trace of each job is exported with OpenTelemetry's protocol (OTLP over HTTP); needs the "
        "extra `telemetry`, which the image has",
    )
    endpoint: HttpUrl = setting(
        "",
        "the address that takes traces, such as `http://collector:4318/v1/traces`; empty: that of "
        "`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`, else port 4318 of this machine",
    )
    headers: SecretStr = setting(
        NO_SECRET,
        'headers of each request, as `name=value,name=value`, best as `"env:NAME"`; empty: those of '
        "`OTEL_EXPORTER_OTLP_HEADERS`",
    )
    service_name: Annotated[str, Field(max_length=200)] = setting(
        "", "the name `service.name` of all spans; empty: that of `OTEL_SERVICE_NAME`, else `maestro`"
    )
    sample_ratio: Ratio = live(
        1.0, "the share of the jobs whose traces are exported, from 0 to 1; traces of failed jobs always are"
    )
    export_seconds: Annotated[float, Field(ge=0.1, le=300)] = live(5.0, "seconds between two exports")
    trace_url: TraceUrl = setting(
        "", "the address of a trace in your tracing system, with `{traceId}`, for links on the pages of jobs"
    )


Days = Annotated[int, Field(ge=0, le=36_500)]


class RetentionSettings(Section):
    """How long data is kept (docs/howto/read-and-delete-conversations.md); 0 keeps it for ever."""

    messages_days: Days = live(
        0, "days after its last message after which a conversation is deleted, with its texts and files"
    )
    jobs_days: Days = live(0, "days after its end after which a job without messages in a conversation is deleted")
    calls_days: Days = live(
        0, "days after the end of a job after which the texts of its model and tool calls are deleted"
    )

    @property
    def is_on(self) -> bool:
        """Whether anything is deleted."""
        return bool(self.messages_days or self.jobs_days or self.calls_days)
