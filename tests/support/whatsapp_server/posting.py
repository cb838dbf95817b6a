"""How Meta posts: signed, one after another, and again with growing pauses until the app says 200."""

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

import httpx

from tests.support.whatsapp_server.business import ACCOUNT_ID, APP_SECRET, NUMBER_ID, Business, Json

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
PATIENCE = 20.0


@dataclass
class Posting:
    """One request, and how each try of it was answered; 0 where nobody answered."""

    body: bytes
    number: str = NUMBER_ID
    answers: list[int] = field(default_factory=list)
    taken: asyncio.Event = field(default_factory=asyncio.Event)


class Postman:
    """Posts to the app: first tries in their order, repeats whenever their pause is over."""

    def __init__(self, business: Business) -> None:
        self.url = ""
        self.urls: dict[str, str] = {}
        """Where what is about a number is posted, if not to ``url``."""
        self.http = httpx.AsyncClient(trust_env=False, timeout=PATIENCE)
        self.postings: list[Posting] = []
        self._business = business
        self._queue: asyncio.Queue[Posting] = asyncio.Queue()
        self._hurry = asyncio.Event()
        self._busy: set[asyncio.Task[None]] = set()

    def work(self) -> None:
        """Post from now on."""
        self._spawn(self._first_tries())

    async def end(self) -> None:
        """Post no more."""
        for one in self._busy:
            one.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)
        await self.http.aclose()

    def post(self, messages: Sequence[Json] = (), statuses: Sequence[Json] = (), number: str = NUMBER_ID) -> Posting:
        """Post all of this in one request, until it is taken."""
        body = json.dumps(self.payload(messages, statuses, number), ensure_ascii=False).encode()
        posting = Posting(body, number)
        self.postings.append(posting)
        self._queue.put_nowait(posting)
        return posting

    def again(self, posting: Posting) -> None:
        """Post what was taken already."""
        posting.taken.clear()
        self._queue.put_nowait(posting)

    def hurry(self) -> None:
        """Try at once what waits for its next try."""
        self._hurry.set()
        self._hurry = asyncio.Event()

    def payload(self, messages: Sequence[Json], statuses: Sequence[Json], number: str) -> Json:
        """Return what a request tells."""
        authors = dict.fromkeys(str(one["from"]) for one in messages if "from" in one)
        value: Json = {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": "15550100001", "phone_number_id": number},
        }
        if messages:
            names = self._business.names
            value["contacts"] = [{"profile": {"name": names.get(one, "")}, "wa_id": one} for one in authors]
            value["messages"] = list(messages)
        if statuses:
            value["statuses"] = list(statuses)
        changes = [{"field": "messages", "value": value}]
        return {"object": "whatsapp_business_account", "entry": [{"id": ACCOUNT_ID, "changes": changes}]}

    async def send(self, body: bytes, *, signed: str | None = None, url: str = "") -> int:
        """Send a request once, with a signature other than the right one if it is given; return the status."""
        headers = {
            "Content-Type": "application/json",
            "X-Hub-Signature-256": signature(APP_SECRET, body) if signed is None else signed,
        }
        return (await self.http.post(url or self.url, content=body, headers=headers)).status_code

    async def _first_tries(self) -> None:
        while True:
            posting = await self._queue.get()
            if not await self._try(posting):
                self._spawn(self._repeat(posting))

    async def _repeat(self, posting: Posting) -> None:
        pause = FIRST_PAUSE
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), pause)
            if await self._try(posting):
                return
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _try(self, posting: Posting) -> bool:
        status = 0
        url = self.urls.get(posting.number, self.url)
        if url:
            with contextlib.suppress(httpx.HTTPError):
                status = await self.send(posting.body, url=url)
        posting.answers.append(status)
        if status == 200:
            posting.taken.set()
        return status == 200

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)


def signature(secret: str, body: bytes) -> str:
    """Return the value of ``X-Hub-Signature-256``."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
