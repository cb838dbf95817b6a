"""What a process that calls models does besides: it reaches nobody else, says nothing of a call, starts at once."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import httpx

from tests.support.llm_requests import MODELS, SAID, SECRETS
from tests.support.llm_server import Failure, LLMServer

MODEL_CALLS = 2 * (len(MODELS) + 2)
ROOT = Path(__file__).parents[3]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def calls_at(server: LLMServer, *arguments: str, **environment: str) -> tuple[dict[str, list[str]], str]:
    """Call everybody in a process of its own; returns what it tells and all that it printed besides."""
    ended = run("-m", "tests.support.llm_no_egress", str(server.port), *arguments, **environment)
    assert ended.returncode == 0, ended.stderr
    *noise, told = ended.stdout.splitlines()
    return json.loads(told), "\n".join([*noise, ended.stderr])


def test_nothing_is_reached_but_the_provider() -> None:
    with LLMServer.running() as server:
        told, noise = calls_at(server)
        answers = [*[f"answer to: {SAID}"] * MODEL_CALLS, "answer to: voice.ogg"]
        assert told == {"answers": answers, "refused": []}
        assert len(server.requests) == MODEL_CALLS + 1
    assert noise == ""


def test_failures_are_not_logged_with_their_text() -> None:
    with LLMServer.running() as server:
        server.script(failure=Failure.status(400))
        told, noise = calls_at(server)
        assert len(server.requests) == MODEL_CALLS + 1
    assert all("refused the request" in answer for answer in told["answers"])
    assert [secret for secret in SECRETS if secret in noise + str(told)] == []
    assert noise == ""


def test_the_log_holds_no_prompt_whatever_its_level() -> None:
    with LLMServer.running() as server:
        _, noise = calls_at(server, "debug", OPENAI_LOG="debug", LITELLM_LOG="DEBUG")
        assert len(server.requests) == MODEL_CALLS + 1
    assert [secret for secret in SECRETS if secret in noise] == []


def test_the_watch_sees_a_way_out() -> None:
    script = (
        "import socket, sys\nfrom tests.support.llm_no_egress import OnlyLocal\n"
        "hook = OnlyLocal(); sys.addaudithook(hook)\n"
        "for way in (lambda: socket.getaddrinfo('example.org', 80),\n"
        "            lambda: socket.socket().connect(('192.0.2.1', 80)),\n"
        "            lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 53))):\n"
        "    try: way()\n"
        "    except ConnectionRefusedError: pass\n"
        "print(len(hook.refused))"
    )
    assert run("-c", script).stdout == "3\n"


def test_readiness_does_not_wait_for_the_library() -> None:
    script = (
        "import os, sys, time\nfrom maestro.llm.litellm_client import LiteLLMClient\n"
        "client = LiteLLMClient(lambda _: b'')\n"
        "assert 'litellm' not in sys.modules\n"
        "began = time.monotonic(); client.library.warm_up(); client.library.warm_up()\n"
        "print(time.monotonic() - began < 0.5, flush=True)\n"
        "os._exit(0)  # without the import that goes on, which takes seconds of CPU time\n"
    )
    ended = run("-c", script)
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_the_model_server_runs_as_a_process() -> None:
    command = [sys.executable, "-m", "tests.support.llm_server", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        root = f"http://127.0.0.1:{int(process.stdout.readline())}"
        failure = asdict(Failure.status(429, {"retry-after": "7"}))
        httpx.post(f"{root}/_script", json={"match": "wait", "failure": failure, "times": 1}).raise_for_status()
        body = {"model": "m", "messages": [{"role": "user", "content": "please wait"}]}
        answers = [httpx.post(f"{root}/v1/chat/completions", json=body) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [429, 200]
        assert answers[0].headers["retry-after"] == "7"
        seen = httpx.get(f"{root}/_requests").json()
        assert [(request["last_user"], request["outcome"]) for request in seen] == [
            ("please wait", "failed"),
            ("please wait", "answered"),
        ]
        process.terminate()


def test_tokens_are_counted_by_an_encoding_that_is_read_then() -> None:
    """litellm reads one of a hundred thousand tokens as it is imported; Maestro's import leaves that for later."""
    script = (
        "import asyncio, importlib, os\nfrom maestro.llm.litellm_client import LiteLLMLibrary\n"
        "asyncio.run(LiteLLMLibrary().load_litellm())\nimport litellm, tiktoken\n"
        "encoding = importlib.import_module('litellm.litellm_core_utils.default_encoding').encoding\n"
        "print(isinstance(encoding, tiktoken.Encoding), '_core_bpe' in vars(encoding), flush=True)\n"
        "same = encoding.encode('hello you') == tiktoken.get_encoding('cl100k_base').encode('hello you')\n"
        "count = litellm.token_counter(model='gpt-4', text='hello you')\n"
        "print(same, count, hasattr(encoding, 'nothing'), flush=True)\n"
        "os._exit(0)\n"
    )
    ended = run("-c", script)
    assert (ended.stdout, ended.stderr) == ("True False\nTrue 2 False\n", "")
