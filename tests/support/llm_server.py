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

Without a script every request is answered at once with ``answer to: <last user message>``. The newest matching
script wins. Wires: OpenAI chat/completions (``/v1``), Anthropic ``/v1/messages``, Gemini ``generateContent``
(``/v1beta``), Ollama ``/api/chat``. Error bodies echo the sender's key and last message on purpose, as some providers
do, so that a leak shows.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web

from tests.support.llm_wires import ANTHROPIC, CONTEXT_MESSAGES, GEMINI, OLLAMA, OPENAI, Json, Wire


@dataclass(frozen=True, slots=True)
class Failure:
    """How a request goes wrong; use the named constructors."""

    kind: str
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    every: float = 0.3

    @classmethod
    def status(cls, code: int, headers: Mapping[str, str] | None = None, body: str | None = None) -> "Failure":
        """An HTTP error; without a body the provider's own shape is used."""
        return cls("status", code, headers or {}, body)

    @classmethod
    def context(cls) -> "Failure":
        """A 400 in the provider's own words for a prompt that does not fit."""
        return cls("context", 400)

    @classmethod
    def reset(cls) -> "Failure":
        """The connection is reset before any byte of an answer."""
        return cls("reset")

    @classmethod
    def silence(cls) -> "Failure":
        """The request is accepted and never answered."""
        return cls("silence")

    @classmethod
    def dribble(cls, every: float = 0.3) -> "Failure":
        """A good answer, 4 bytes at a time, with ``every`` seconds between."""
        return cls("dribble", every=every)

    @classmethod
    def malformed(cls) -> "Failure":
        """Status 200 with a body that breaks off in the middle of its JSON."""
        return cls("malformed")

    @classmethod
    def empty_body(cls) -> "Failure":
        """Status 200 and no body at all."""
        return cls("raw", body="")

    @classmethod
    def raw(cls, body: str) -> "Failure":
        """Status 200 and this body."""
        return cls("raw", body=body)

    @classmethod
    def empty_content(cls) -> "Failure":
        """A proper success whose content is empty."""
        return cls("empty_content")


@dataclass(slots=True)
class Script:
    """What to do with requests whose last user message contains ``match`` (any, when empty)."""

    match: str = ""
    delay: float = 0.0
    """Seconds before the answer or the failure."""
    reply: str | None = None
    """The answer's text; ``{last}`` stands for the last user message."""
    failure: Failure | None = None
    times: int | None = None
    """How many requests it serves; None for all."""


@dataclass(slots=True)
class Recorded:
    """One request as the server saw it; times are seconds of the system-wide monotonic clock."""

    number: int
    wire: str
    path: str
    headers: dict[str, str]
    body: Json
    texts: list[str]
    """The prompt's texts in order, the system's first where there is one."""
    received: float
    answered: float | None = None
    """When the last byte was handed over or the client went away; None while in flight."""
    outcome: str = "in flight"
    """``answered``, ``failed`` (a scripted failure) or ``gone`` (the client or the server went away first)."""

    @property
    def last_user(self) -> str:
        """The last message of the prompt, which is the user's."""
        return self.texts[-1] if self.texts else ""

    def overlaps(self, other: "Recorded") -> bool:
        """Tell whether both requests were in flight at the same time."""
        return self.in_flight_at(other.received) or other.in_flight_at(self.received)

    def in_flight_at(self, moment: float) -> bool:
        """Tell whether the request was being served at a moment of the monotonic clock."""
        return self.received <= moment and (self.answered is None or moment < self.answered)


class LLMServer:
    """The server and its script; all methods may be called from any thread."""

    def __init__(self) -> None:
        self.port = 0
        self._scripts: list[Script] = []
        self._requests: list[Recorded] = []
        self._lock = threading.Lock()

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
    ) -> None:
        """Add a script; the newest that matches and is not used up serves a request."""
        with self._lock:
            self._scripts.append(Script(match, delay, reply, failure, times))

    def reset(self) -> None:
        """Forget all scripts and requests."""
        with self._lock:
            self._scripts.clear()
            self._requests.clear()

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
        app.router.add_get("/_requests", self._get_requests)
        app.router.add_post("/v1/chat/completions", self._model_call(OPENAI))
        app.router.add_post("/v1/messages", self._model_call(ANTHROPIC))
        app.router.add_post(r"/v1beta/models/{model:[^:]+}:generateContent", self._model_call(GEMINI))
        app.router.add_post("/api/chat", self._model_call(OLLAMA))
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

    async def _get_requests(self, _: web.Request) -> web.Response:
        return web.json_response([asdict(recorded) | {"last_user": recorded.last_user} for recorded in self.requests])

    def _model_call(self, wire: Wire) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            recorded, script = self._record(wire, request, json.loads(await request.read()))
            try:
                await asyncio.sleep(script.delay)
                response = await _respond(wire, request, recorded, script)
            except asyncio.CancelledError:
                recorded.outcome = "gone"
                raise
            else:
                recorded.outcome = "failed" if script.failure else "answered"
                return response
            finally:
                recorded.answered = time.monotonic()

        return handle

    def _record(self, wire: Wire, request: web.Request, body: Json) -> tuple[Recorded, Script]:
        """Note a request and choose what happens to it."""
        with self._lock:
            texts, number = wire.prompt(body), len(self._requests) + 1
            headers = {name.lower(): value for name, value in request.headers.items()}
            recorded = Recorded(number, wire.name, request.path_qs, headers, body, texts, time.monotonic())
            self._requests.append(recorded)
            fitting = [s for s in self._scripts if s.match in recorded.last_user and s.times != 0]
            script = fitting[-1] if fitting else Script()
            if script.times is not None:
                script.times -= 1
            return recorded, script


async def _respond(wire: Wire, request: web.Request, recorded: Recorded, script: Script) -> web.StreamResponse:
    """Answer or fail as the script says."""
    model = str(recorded.body.get("model") or request.match_info.get("model", ""))
    reply = "answer to: {last}" if script.reply is None else script.reply
    answer = json.dumps(wire.answer(model, reply.replace("{last}", recorded.last_user)))
    failure = script.failure or Failure.raw(answer)
    match failure.kind:
        case "reset":
            return _reset(request)
        case "silence":
            await asyncio.Event().wait()
        case "dribble":
            return await _dribble(request, answer, failure.every)
        case "malformed":
            answer = answer[: len(answer) // 2]
        case "empty_content":
            answer = json.dumps(wire.answer(model, ""))
        case "status" | "context":
            answer = _error_body(wire, recorded, failure)
        case "raw":
            answer = failure.body or ""
    headers = {"content-type": "application/json", **failure.headers}
    return web.Response(status=failure.code, body=answer.encode(), headers=headers)


def _error_body(wire: Wire, recorded: Recorded, failure: Failure) -> str:
    """Write an error body that quotes the key and the prompt, the way the worst provider would."""
    if failure.body is not None:
        return failure.body
    keys = [recorded.headers.get(name, "") for name in ("authorization", "x-api-key", "x-goog-api-key")]
    said = CONTEXT_MESSAGES[wire.name] if failure.kind == "context" else f"scripted failure {failure.code}"
    return json.dumps(wire.error(failure.code, f"{said} [key {''.join(keys)}] [prompt {recorded.last_user}]"))


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
