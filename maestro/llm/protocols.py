"""What a model call is: a request in, a response out, and middleware between."""

from typing import Protocol

from maestro.domain.prompts import LLMRequest, LLMResponse


class LLMClient(Protocol):
    """Anything that answers a request: the transport, or a middleware around another client."""

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer the request once, without retrying; raises an ``LLMFailure``."""
        ...


class Middleware(Protocol):
    """Wraps a client into another one; the first of a chain is the outermost."""

    def __call__(self, inner: LLMClient, /) -> LLMClient:
        """Return a client that adds one concern to ``inner``."""
        ...


def chain(transport: LLMClient, *middleware: Middleware) -> LLMClient:
    """Wrap the transport so that the first middleware sees a request first and its response last."""
    client = transport
    for wrap in reversed(middleware):
        client = wrap(client)
    return client
