"""The model server of the tests itself: what other tests rely on to tell accounts, rounds and voices apart."""

import httpx
import pytest

from tests.support.llm_server import Failure, LLMServer

FIRST, SECOND = "sk-first", "sk-second"


def chat(server: LLMServer, said: str, key: str = FIRST) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": said}]}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})


def transcribe(server: LLMServer, audio: bytes, key: str = FIRST) -> httpx.Response:
    return httpx.post(
        f"{server.url}/v1/audio/transcriptions",
        data={"model": "whisper-1"},
        files={"file": ("voice.ogg", audio, "audio/ogg")},
        headers={"authorization": f"Bearer {key}"},
    )


def test_one_server_plays_two_accounts(server: LLMServer) -> None:
    server.script(account=FIRST, failure=Failure.limited(2), times=1)
    assert [chat(server, "hello", key).status_code for key in (SECOND, FIRST, FIRST)] == [200, 429, 200]
    assert [request.key for request in server.requests] == [SECOND, FIRST, FIRST]
    assert [request.model for request in server.requests] == ["m"] * 3


def test_a_voice_becomes_text(server: LLMServer) -> None:
    server.script(reply="Good morning.", wire="transcription")
    assert transcribe(server, b"OggS sound").json() == {"text": "Good morning."}
    assert chat(server, "hello").json()["choices"][0]["message"]["content"] == "answer to: hello"
    [voice, _] = server.requests
    assert (voice.audio, voice.model, voice.key, voice.last_user) == (b"OggS sound", "whisper-1", FIRST, "voice.ogg")


@pytest.mark.parametrize(
    ("failure", "status"), [(Failure.limited(2), 429), (Failure.credit(), 429), (Failure.status(500), 500)]
)
def test_a_voice_can_fail(server: LLMServer, failure: Failure, status: int) -> None:
    server.script(failure=failure, wire="transcription")
    assert transcribe(server, b"OggS").status_code == status
    assert chat(server, "hello").status_code == 200


def test_rounds_are_told_apart(server: LLMServer) -> None:
    server.script(match="weather", calls=[("web_search", {"query": "weather"})], rounds=0)
    server.script(match="weather", reply="It says: {results}", rounds=1)
    first = chat(server, "the weather?").json()["choices"][0]["message"]
    [call] = first["tool_calls"]
    turns = [
        {"role": "user", "content": "the weather?"},
        first,
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"},
    ]
    answer = httpx.post(f"{server.url}/v1/chat/completions", json={"model": "m", "messages": turns}).json()
    assert answer["choices"][0]["message"]["content"] == "It says: sunny"
    assert [(request.rounds, request.results) for request in server.requests] == [
        (0, []),
        (1, [("web_search", "sunny")]),
    ]
