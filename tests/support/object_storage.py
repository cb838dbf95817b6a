"""An S3 server of its own, which checks signatures, and servers that fail as those of others do."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.ports import free_ports

RCLONE = Path(sys.executable).with_name("rclone")
PATIENCE = 60.0
KEY, SECRET, BUCKET = "access-key-of-the-tests", "secret-key-of-the-tests", "acme-files"


class ObjectStorage:
    """An S3 server whose buckets are folders; it can be stopped and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        (folder / BUCKET).mkdir(parents=True)
        self.prefix = "of/maestro"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> Mapping[str, object]:
        """The section `media` of an installation that keeps its files here."""
        return {
            "url": f"s3://{BUCKET}/{self.prefix}",
            "endpoint": f"http://127.0.0.1:{self.port}",
            "accessKeyId": KEY,
            "secretAccessKey": SECRET,
            "timeoutSeconds": 60,
        }

    def path_of_digest(self, digest: str) -> Path:
        """Return the file in which the server keeps an object."""
        return self._folder / BUCKET / self.prefix / digest[:2] / digest

    def list_objects(self) -> list[str]:
        """Return the last part of the name of each object below the prefix."""
        return sorted(path.name for path in (self._folder / BUCKET / self.prefix).rglob("*") if path.is_file())

    def start(self) -> None:
        """Start the server, and return when it listens."""
        command = [
            str(RCLONE),
            "serve",
            "s3",
            str(self._folder),
            "--addr",
            f"127.0.0.1:{self.port}",
            "--config",
            os.devnull,
        ]
        command += ["--auth-key", f"{KEY},{SECRET}"]
        with (self._folder / "log").open("w") as log:
            self._process = process = subprocess.Popen(command, stderr=log)
        until = time.monotonic() + PATIENCE
        while not self._listens():
            assert process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < until, "the S3 server does not listen"
            time.sleep(0.05)

    def stop(self) -> None:
        """End the server; nothing listens at its address any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def object_storage(folder: Path) -> Iterator[ObjectStorage]:
    """Run an S3 server for the length of a block."""
    storage = ObjectStorage(folder)
    storage.start()
    try:
        yield storage
    finally:
        storage.stop()


@contextmanager
def failing_server(status: int | None) -> Iterator[str]:
    """Run a server that answers each request with this status, or never; yield its address."""
    closed = threading.Event()

    class Answer(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if status is None:
                closed.wait()
                return
            body = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
            self.send_response(status)
            for header in (("Last-Modified", self.date_time_string()), ("ETag", '"1"'), ("Content-Length", len(body))):
                self.send_header(header[0], str(header[1]))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815 - the names of the base class

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    running = threading.Thread(target=server.serve_forever, daemon=True)
    running.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        closed.set()
        server.shutdown()
        server.server_close()
        running.join()
