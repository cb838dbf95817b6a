"""The webhooks of platforms on the web connector's port; their routes come and go with their connectors."""

import contextlib
from collections.abc import Iterator

from starlette.routing import BaseRoute, Mount, Route, Router

from connectors.base import Connector, HasRoutes


class Webhooks:
    """Serves the routes of connectors under ``/<platform>/<account>`` while they run; nothing else is found there."""

    def __init__(self) -> None:
        self.router = Router()

    @contextlib.contextmanager
    def serving(self, connector: Connector) -> Iterator[None]:
        """Serve a connector's routes, if it has any, for the length of the block."""
        routes = _below(f"/{connector.platform}/{connector.account}", connector)
        self.router.routes.extend(routes)
        try:
            yield
        finally:
            for route in routes:
                self.router.routes.remove(route)


def _below(prefix: str, connector: Connector) -> list[BaseRoute]:
    """Return a connector's routes under a prefix, which stands for their ``/``: platforms follow no redirect."""
    if not isinstance(connector, HasRoutes):
        return []
    return [_moved(prefix, route) for route in connector.routes()]


def _moved(prefix: str, route: BaseRoute) -> BaseRoute:
    if not isinstance(route, Route):
        return Mount(prefix, routes=[route])
    return Route(prefix + route.path.rstrip("/"), route.endpoint, methods=list(route.methods or ()))
