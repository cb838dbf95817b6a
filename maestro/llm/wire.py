"""What really goes over the wire in one model call: at most one request, and the status, headers and body it met.

A library between us and the provider retries where nobody asked it to, follows redirects with our key in its
headers, and reports statuses it made up. The transport sees what happened.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import httpx

BODY_LIMIT = 4 * 1024 * 1024
"""Characters of an error body that are kept, so that one which sends a whole prompt back is whole JSON."""


@dataclass(slots=True)
class Exchange:
    """What one model call did on the wire; ``status`` is None when no answer came, ``body`` is that of an error."""

    requests: int = 0
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class SecondRequestError(Exception):
    """Something tried to send again within one call: repeating is the engine's business (design invariant 6)."""


_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


@contextmanager
def observed() -> Iterator[Exchange]:
    """Observe the one request of a model call made inside, and refuse any further one."""
    exchange = Exchange()
    token = _current.set(exchange)
    try:
        yield exchange
    finally:
        _current.reset(token)


class ObservedTransport(httpx.AsyncBaseTransport):
    """Wraps a transport so that ``observed`` sees what passes."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; raises ``SecondRequestError`` for a second one in the same call."""
        exchange = _current.get()
        if exchange is None:
            return await self._inner.handle_async_request(request)
        exchange.requests += 1
        if exchange.requests > 1:
            raise SecondRequestError
        response = await self._inner.handle_async_request(request)
        exchange.status, exchange.headers = response.status_code, dict(response.headers)
        if not response.is_success:
            await response.aread()
            exchange.body = response.text[:BODY_LIMIT]
        return response

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        await self._inner.aclose()
