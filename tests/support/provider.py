"""A provider of models that is only asked what costs nothing, and notes how it was asked."""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Provider:
    """What it answers to every request, and what it was asked: method, path and headers in lower case."""

    port: int
    status: int = 200
    body: object = None
    asked: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def provider(status: int = 200, body: object = None) -> Iterator[Provider]:
    """Run one for the length of a block."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *_: object) -> None:
            """Stay silent."""

        def _answer(self) -> None:
            here.asked.append((self.command, self.path, {name.lower(): text for name, text in self.headers.items()}))
            content = json.dumps(here.body).encode()
            self.send_response(here.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        here = Provider(server.server_port, status, body)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield here
        finally:
            server.shutdown()
            serving.join()


def ollama(*models: str) -> contextlib.AbstractContextManager[Provider]:
    """Run an Ollama that has these models."""
    return provider(body={"models": [{"name": name} for name in models]})
