"""The codec endpoint: Temporal's Web UI and CLI have payloads decrypted, for those who may use the API."""

import base64
import os
from typing import Any

import httpx
import pytest
from temporalio.api.common.v1 import Payload

from api.guards import COOKIE
from api.parts import PayloadCoding
from temporal.codec import EncryptionCodec, PayloadService
from tests.support.api_client import BASIC, HOME, PASSWORD, VIEWER, VIEWER_PASSWORD, app_of, client
from tests.support.job_rows import JobRows

KEYS = {"first": os.urandom(32)}
UI = "http://localhost:8233"
FOREIGN = "https://evil.example"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'{"job_id":"message-1"}')


def coding(**keys: bytes) -> PayloadCoding:
    """Return the encryption with these keys."""
    service = PayloadService(keys)
    return PayloadCoding(service.encrypt, service.decrypt, "default", frozenset({UI}))


def written(payload: Payload) -> dict[str, Any]:
    """Return a payload as Temporal's programs write it in JSON."""
    metadata = {name: base64.b64encode(value).decode() for name, value in payload.metadata.items()}
    return {"metadata": metadata, "data": base64.b64encode(payload.data).decode()}


ENCRYPTED = written(EncryptionCodec(KEYS).encrypt(PLAIN))


async def asked(
    rows: JobRows, path: str = "decode", *payloads: dict[str, Any], origin: str = "", **options: Any
) -> httpx.Response:
    """Send payloads to the endpoint, from a page of this origin if one is given."""
    cookies = options.pop("cookies", {})
    headers = {**({"Origin": origin, "Sec-Fetch-Site": "same-site"} if origin else {}), **options.pop("headers", {})}
    async with client(app_of(rows, payloads=coding(**KEYS)), cookies=cookies, headers=headers) as http:
        return await http.post(f"/api/codec/{path}", json={"payloads": payloads or [ENCRYPTED]}, **options)


async def login(rows: JobRows, password: str) -> dict[str, str]:
    """Return the cookie of a login."""
    async with client(app_of(rows)) as http:
        await http.post("/login", json={"password": password})
        return {COOKIE: http.cookies[COOKIE]}


async def test_a_payload_is_decrypted_and_encrypted_again(rows: JobRows) -> None:
    plain = written(PLAIN)
    decoded = await asked(rows, "decode", ENCRYPTED, plain, auth=BASIC)
    assert (decoded.status_code, decoded.json()) == (200, {"payloads": [plain, plain]})
    encoded = await asked(rows, "encode", plain, auth=BASIC)
    [payload] = encoded.json()["payloads"]
    assert base64.b64decode(payload["metadata"]["encoding"]) == b"binary/encrypted"
    assert (await asked(rows, "decode", payload, auth=BASIC)).json() == {"payloads": [plain]}


@pytest.mark.parametrize("path", ["encode", "decode"])
async def test_without_a_login_nothing_is_converted(rows: JobRows, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer of-the-web-ui"}, {"Origin": UI, "Sec-Fetch-Site": "same-site"}):
        answer = await asked(rows, path, headers=headers)
        assert answer.status_code == 401
        assert set(answer.json()) == {"error", "message"}


async def test_a_viewer_may_decrypt_and_not_encrypt(rows: JobRows) -> None:
    assert (await asked(rows, "decode", auth=VIEWER)).status_code == 200
    assert (await asked(rows, "encode", auth=VIEWER)).status_code == 403


async def test_a_page_of_the_web_ui_decrypts_with_the_login_of_the_dashboard(rows: JobRows) -> None:
    for password in (PASSWORD, VIEWER_PASSWORD):
        answer = await asked(rows, origin=UI, cookies=await login(rows, password))
        assert answer.json() == {"payloads": [written(PLAIN)]}
        assert answer.headers["access-control-allow-origin"] == UI
        assert answer.headers["access-control-allow-credentials"] == "true"


async def test_a_page_of_another_site_decrypts_nothing(rows: JobRows) -> None:
    for origin in (FOREIGN, "null", f"{UI}0"):
        answer = await asked(rows, origin=origin, cookies=await login(rows, PASSWORD))
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


async def test_the_origin_of_the_web_ui_opens_no_other_path(rows: JobRows) -> None:
    headers = {"Origin": UI, "Sec-Fetch-Site": "same-site"}
    async with client(app_of(rows, payloads=coding(**KEYS)), auth=BASIC, headers=headers) as http:
        assert (await http.post("/api/web/tickets")).status_code == 403
        answer = await http.get("/api/jobs")
    assert "access-control-allow-origin" not in answer.headers


async def test_a_cookie_without_an_origin_needs_the_token_of_its_session(rows: JobRows) -> None:
    assert (await asked(rows, cookies=await login(rows, PASSWORD))).status_code == 403


async def test_the_preflight_of_the_web_ui_is_answered_without_a_login(rows: JobRows) -> None:
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,x-namespace"}
    async with client(app_of(rows, payloads=coding(**KEYS))) as http:
        answer = await http.options("/api/codec/decode", headers={"Origin": UI, **wanted})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == UI
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert "x-namespace" in answer.headers["access-control-allow-headers"].lower()
        foreign = await http.options("/api/codec/decode", headers={"Origin": FOREIGN, **wanted})
    assert "access-control-allow-origin" not in foreign.headers


async def test_the_page_can_read_why_it_was_refused(rows: JobRows) -> None:
    answer = await asked(rows, origin=UI)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, UI)


@pytest.mark.parametrize(("namespace", "status"), [("default", 200), ("other", 403)])
async def test_the_keys_are_for_one_namespace(rows: JobRows, namespace: str, status: int) -> None:
    answer = await asked(rows, auth=BASIC, headers={"X-Namespace": namespace})
    assert answer.status_code == status


async def test_an_unknown_key_is_named(rows: JobRows) -> None:
    other = written(EncryptionCodec({"gone": os.urandom(32)}).encrypt(PLAIN))
    answer = await asked(rows, "decode", other, auth=BASIC)
    assert answer.status_code == 400
    assert "the key 'gone', which temporal.codec.keys does not have" in answer.json()["message"]


@pytest.mark.parametrize("payload", [{"metadata": {"encoding": "?"}}, {"data": "not base64"}, {"data": 5}, 5])
async def test_a_body_of_another_form_is_refused(rows: JobRows, payload: Any) -> None:
    answer = await asked(rows, "decode", payload, auth=BASIC)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")


async def test_without_keys_there_is_no_endpoint(rows: JobRows) -> None:
    async with client(app_of(rows), auth=BASIC, headers={"Origin": HOME}) as http:
        answer = await http.post("/api/codec/decode", json={"payloads": []})
    assert answer.status_code == 404


async def test_no_request_is_in_the_audit_log(rows: JobRows) -> None:
    """The Web UI sends one for every event that it shows."""
    await asked(rows, auth=BASIC)
    async with client(app_of(rows), auth=BASIC) as http:
        assert (await http.get("/api/audit")).json()["items"] == []
