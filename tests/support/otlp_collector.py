"""A collector of traces: an HTTP server that takes OpenTelemetry's protocol and reads its protobuf messages."""

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

PATH = "/v1/traces"


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as the collector got it; ids are hexadecimal, times in nanoseconds, ``service`` is its resource."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    failed: str
    attributes: Mapping[str, Any]
    service: Mapping[str, Any]
    links: tuple[tuple[str, str], ...]

    @property
    def command(self) -> str:
        """The command of the process that did the work."""
        return str(self.service.get("maestro.command", ""))


@dataclass
class OtlpCollector:
    """What the collector got, and the status with which it answers."""

    url: str = ""
    status: HTTPStatus = HTTPStatus.OK
    spans: list[ReceivedSpan] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    refused: int = 0

    def trace(self, trace_id: str) -> list[ReceivedSpan]:
        """Return the spans of a trace in the order of their starts."""
        return sorted((span for span in list(self.spans) if span.trace_id == trace_id), key=lambda span: span.start)

    def trace_of(self, job_id: str) -> list[ReceivedSpan]:
        """Return the spans of the trace of a job, none until its root has arrived."""
        roots = [span for span in list(self.spans) if span.attributes.get("maestro.job.id") == job_id]
        return self.trace(roots[0].trace_id) if roots else []

    def take(self, body: bytes) -> None:
        """Read the spans of a request."""
        self.bodies.append(body)
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            service = _values(group.resource.attributes)
            for span in (span for scope in group.scope_spans for span in scope.spans):
                links = tuple(
                    (_values(link.attributes)["maestro.relation"], link.trace_id.hex()) for link in span.links
                )
                self.spans.append(
                    ReceivedSpan(
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        name=span.name,
                        start=span.start_time_unix_nano,
                        end=span.end_time_unix_nano,
                        failed=span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
                        attributes=_values(span.attributes),
                        service=service,
                        links=links,
                    )
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def otlp_collector() -> Iterator[OtlpCollector]:
    """Run a collector on a free port for the length of a block."""
    collector = OtlpCollector()

    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            known = self.path == PATH and self.headers["Content-Type"] == "application/x-protobuf"
            status = collector.status if known else HTTPStatus.NOT_FOUND
            if status is HTTPStatus.OK:
                collector.take(body)
                collector.headers.append(dict(self.headers))
            else:
                collector.refused += 1
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_address[1]}{PATH}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
