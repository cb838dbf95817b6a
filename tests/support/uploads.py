"""Files that a client of the web connector uploads and then refers to."""

import httpx

from tests.support.web_client import WebClient


async def upload(client: WebClient, port: int, name: str, content: bytes) -> str:
    """Upload a file as the client's user and return its id."""
    bearer = {"Authorization": f"Bearer {client.resume_token}"}
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"http://127.0.0.1:{port}/api/upload", files={"file": (name, content)}, headers=bearer)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def tell(client: WebClient, content: str, *attachments: str) -> None:
    """Say something with files and wait for the answer."""
    ack = await client.say(content, attachments=attachments)
    assert ack["type"] == "ack", ack
    await client.wait_for("message", patience=30)
