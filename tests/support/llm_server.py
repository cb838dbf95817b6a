"""A local HTTP server that speaks the providers' real wire formats, for tests of any kind.

In a test, sync or async (the server has its own thread and loop)::

    with LLMServer.running() as server:
        server.script(match="slow", delay=2.0, reply="at last")     # stays until reset()
        server.script(match="hello", failure=Failure.status(500), times=1)
        ...  # point an account at server.base_url("anthropic")
        assert [r.last_user for r in server.requests] == ["hello", "hello"]
        assert server.in_flight_peak() == 2

From another process: ``python -m tests.support.llm_server --port 0`` prints its port on one line and runs until it
is killed. The same API over HTTP: ``POST /_script`` (the fields of ``Script``; a failure as the fields of
``Failure``), ``GET /_requests``, ``POST /_reset``.

Without a script every request is answered at once with ``answer to: <last user message>``, or with the same in pieces
where a stream is asked for. The newest matching script wins. Wires: OpenAI chat/completions (``/v1``), Anthropic
``/v1/messages``, Gemini ``generateContent`` (``/v1beta``), Ollama ``/api/chat``; and ``/v1/audio/transcriptions``,
where the name of the file counts as what was said. Error bodies echo the sender's key and last message on purpose, as
some providers do, so that a leak shows.

Tools, and two accounts at one server::

    server.script(match="weather", calls=[("web_search", {"query": "weather"})], rounds=0)
    server.script(match="weather", reply="It says: {results}", rounds=1)
    server.script(account="sk-first", failure=Failure.limited(2), times=1)

An answer that is streamed, which waits after three pieces until it is told to go on::

    server.script(match="story", reply="Once upon a time ...", pause=3)
    server.go_on()
"""

import argparse
import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from aiohttp import web

from tests.support.llm_script import Failure, Recorded, Script
from tests.support.llm_streams import content_type_of, pieces_of, trouble_of, wants_stream
from tests.support.llm_wires import (
    ANTHROPIC,
    CONTEXT_MESSAGES,
    CREDIT_MESSAGES,
    GEMINI,
    OLLAMA,
    OPENAI,
    TRANSCRIPTION,
    Json,
    Reply,
    ToolCalls,
    Wire,
)

__all__ = ["Failure", "LLMServer", "Recorded", "Script"]

IN_A_STREAM = ("", "empty_content", "cut", "ended", "trouble", "stalled")
"""What can become of an answer that is streamed; anything else happens before its first piece."""
SETTLING = 0.2
"""Seconds in which a client reads what came before its connection is reset."""


class LLMServer:
    """The server and its script; all methods may be called from any thread."""

    def __init__(self) -> None:
        self.port = 0
        self._scripts: list[Script] = []
        self._requests: list[Recorded] = []
        self._lock = threading.Lock()
        self._gate = threading.Event()

    @classmethod
    @contextlib.contextmanager
    def running(cls, port: int = 0) -> Iterator["LLMServer"]:
        """Run a server in its own thread; port 0 takes a free one."""
        server, loop, ready = cls(), asyncio.new_event_loop(), threading.Event()

        async def serve() -> None:
            async with server.serving(port):
                ready.set()
                await stopped.wait()

        stopped = asyncio.Event()
        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True, name="llm-server")
        thread.start()
        if not ready.wait(10):
            raise RuntimeError("the test model server did not start within 10 s")
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(stopped.set)
            thread.join(10)
            loop.close()

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["LLMServer"]:
        """Serve on the running loop; port 0 takes a free one."""
        runner = web.AppRunner(self._app(), handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    @property
    def url(self) -> str:
        """The server's root."""
        return f"http://127.0.0.1:{self.port}"

    def base_url(self, provider: str) -> str:
        """The base URL to configure for a provider's account."""
        return self.url + {"openai": "/v1", "openrouter": "/v1", "gemini": "/v1beta"}.get(provider, "")

    @property
    def requests(self) -> list[Recorded]:
        """Every request so far, in order of arrival."""
        with self._lock:
            return list(self._requests)

    def matching(self, text: str) -> list[Recorded]:
        """The requests whose last user message contains a text."""
        return [request for request in self.requests if text in request.last_user]

    def in_flight_peak(self, text: str = "") -> int:
        """The largest number of requests that were in flight at once, of those that contain a text."""
        found = self.matching(text)
        return max((sum(other.in_flight_at(one.received) for other in found) for one in found), default=0)

    def script(
        self,
        match: str = "",
        *,
        delay: float = 0.0,
        reply: str | None = None,
        failure: Failure | None = None,
        times: int | None = None,
        account: str = "",
        wire: str = "",
        rounds: int | None = None,
        calls: ToolCalls = (),
        cached: int = 0,
        written: int = 0,
        pause: int = 0,
        slow: float = 0.0,
        held: bool = False,
    ) -> None:
        """Add a script, by the fields of ``Script``; the newest that matches and is not used up serves a request."""
        told = (match, delay, reply, failure, times, account, wire, rounds, calls, cached, written, pause, slow, held)
        script = Script(*told)
        with self._lock:
            self._scripts.append(script)

    def reset(self) -> None:
        """Forget all scripts and requests."""
        self.go_on()
        with self._lock:
            self._gate = threading.Event()
            self._scripts.clear()
            self._requests.clear()

    def go_on(self) -> None:
        """Let every answer that waits go on, and none wait until the next ``reset``."""
        self._gate.set()

    def wait_for(self, condition: Callable[[Sequence[Recorded]], bool], timeout: float = 10.0) -> list[Recorded]:
        """Block until the requests fulfil a condition and return them; for sync tests (raises ``TimeoutError``)."""
        until = time.monotonic() + timeout
        while not condition(found := self.requests):
            if time.monotonic() > until:
                raise TimeoutError(f"not within {timeout} s; {len(found)} requests so far")
            time.sleep(0.01)
        return found

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/_script", self._post_script)
        app.router.add_post("/_reset", self._post_reset)
        app.router.add_post("/_go_on", self._post_go_on)
        app.router.add_get("/_requests", self._get_requests)
        app.router.add_post("/v1/chat/completions", self._model_call(OPENAI))
        app.router.add_post("/v1/messages", self._model_call(ANTHROPIC))
        for how in ("generateContent", "streamGenerateContent"):
            app.router.add_post(rf"/v1beta/models/{{model:[^:]+}}:{how}", self._model_call(GEMINI))
        app.router.add_post("/api/chat", self._model_call(OLLAMA))
        app.router.add_post("/v1/audio/transcriptions", self._model_call(TRANSCRIPTION))
        return app

    async def _post_script(self, request: web.Request) -> web.Response:
        fields = await request.json()
        if fields.get("failure"):
            fields["failure"] = Failure(**fields["failure"])
        with self._lock:
            self._scripts.append(Script(**fields))
        return web.json_response({"ok": True})

    async def _post_reset(self, _: web.Request) -> web.Response:
        self.reset()
        return web.json_response({"ok": True})

    async def _post_go_on(self, _: web.Request) -> web.Response:
        self.go_on()
        return web.json_response({"ok": True})

    async def _get_requests(self, _: web.Request) -> web.Response:
        return web.json_response([recorded.told() for recorded in self.requests])

    def _model_call(self, wire: Wire) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            body, audio = await _form(request) if wire is TRANSCRIPTION else (json.loads(await request.read()), b"")
            recorded, script = self._record(wire, request, body, audio)
            try:
                if script.held:
                    await _opened(self._gate)
                await asyncio.sleep(script.delay)
                response = await self._respond(wire, request, recorded, script)
            except (asyncio.CancelledError, ConnectionResetError) as gone:
                recorded.outcome = "gone"
                if isinstance(gone, asyncio.CancelledError):
                    raise
                return web.Response()
            else:
                recorded.outcome = "failed" if script.failure else "answered"
                return response
            finally:
                recorded.answered = time.monotonic()

        return handle

    def _record(self, wire: Wire, request: web.Request, body: Json, audio: bytes) -> tuple[Recorded, Script]:
        """Note a request and choose what happens to it."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        with self._lock:
            number, now = len(self._requests) + 1, time.monotonic()
            recorded = Recorded(number, wire.name, request.path_qs, headers, body, wire.asked(body), now, audio=audio)
            self._requests.append(recorded)
            fitting = [script for script in self._scripts if script.serves(recorded)]
            script = fitting[-1] if fitting else Script()
            if script.times is not None:
                script.times -= 1
            return recorded, script

    async def _respond(
        self, wire: Wire, request: web.Request, recorded: Recorded, script: Script
    ) -> web.StreamResponse:
        """Answer, piece by piece where that was asked for, or fail as the script says."""
        kind = script.failure.kind if script.failure else ""
        if wire is TRANSCRIPTION or kind not in IN_A_STREAM or not wants_stream(recorded.path, recorded.body):
            return await _respond(wire, request, recorded, script)
        reply = Reply("") if kind == "empty_content" else script.answer(recorded)
        answer = wire.answer(recorded.model, reply)
        return await self._stream(wire, request, pieces_of(wire.name, answer, recorded.body), script)

    async def _stream(
        self, wire: Wire, request: web.Request, pieces: Sequence[bytes], script: Script
    ) -> web.StreamResponse:
        failure, gate = script.failure or Failure("none"), self._gate
        response = web.StreamResponse(headers={"content-type": content_type_of(wire.name)})
        await response.prepare(request)
        for number, piece in enumerate(pieces, 1):
            await response.write(piece)
            await asyncio.sleep(script.slow)
            if script.pause == number:
                await _opened(gate)
            if failure.pieces == number:
                break
        match failure.kind:
            case "cut":
                await asyncio.sleep(SETTLING)  # what was written before a reset is lost unless it was read
                return _reset(request)
            case "stalled":
                await asyncio.Event().wait()
            case "trouble":
                await response.write(trouble_of(wire.name))
        await response.write_eof()
        return response


async def _opened(gate: threading.Event) -> None:
    while not gate.is_set():  # noqa: ASYNC110 - it is opened from any thread
        await asyncio.sleep(0.01)


async def _respond(wire: Wire, request: web.Request, recorded: Recorded, script: Script) -> web.StreamResponse:
    """Answer at once or fail as the script says."""
    answer = json.dumps(wire.answer(recorded.model, script.answer(recorded)))
    failure, code = script.failure or Failure.raw(answer), 200
    match failure.kind:
        case "reset" | "cut":
            return _reset(request)
        case "silence":
            await asyncio.Event().wait()
        case "dribble":
            return await _dribble(request, answer, failure.every)
        case "malformed":
            answer = answer[: len(answer) // 2]
        case "empty_content":
            answer = json.dumps(wire.answer(recorded.model, Reply("")))
        case "status" | "context" | "credit":
            code, answer = _error(wire, recorded, failure)
        case "raw":
            answer = failure.body or ""
    headers = {"content-type": "application/json", **failure.headers}
    return web.Response(status=code, body=answer.encode(), headers=headers)


def _error(wire: Wire, recorded: Recorded, failure: Failure) -> tuple[int, str]:
    """Return status and body of an error; the body quotes the key and the prompt, as the worst provider would."""
    if failure.body is not None:
        return failure.code, failure.body
    code, said = failure.code, f"scripted failure {failure.code}"
    if failure.kind == "context":
        said = CONTEXT_MESSAGES[wire.name]
    elif failure.kind == "credit":
        code, said = CREDIT_MESSAGES[wire.name]
    return code, json.dumps(wire.error(code, f"{said} [key {recorded.key}] [prompt {recorded.last_user}]"))


async def _form(request: web.Request) -> tuple[Json, bytes]:
    """Read a form: its fields, of a file its name, and the bytes of the file."""
    fields: Json = {}
    audio = b""
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            fields[name], audio = value.filename, value.file.read()
        else:
            fields[name] = value
    return fields, audio


def _reset(request: web.Request) -> web.Response:
    """Reset the connection: no linger means RST instead of a polite end."""
    transport = request.transport
    assert transport is not None
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()
    return web.Response()


async def _dribble(request: web.Request, answer: str, every: float) -> web.StreamResponse:
    """Send an answer four bytes at a time."""
    response = web.StreamResponse(headers={"content-type": "application/json"})
    await response.prepare(request)
    data = answer.encode()
    for start in range(0, len(data), 4):
        await response.write(data[start : start + 4])
        await asyncio.sleep(every)
    await response.write_eof()
    return response


async def _main(port: int) -> None:
    """Serve until killed; the port is the first line of standard output."""
    async with LLMServer().serving(port) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args().port))
