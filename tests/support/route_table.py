"""The table of an app's routes, for tests that try each of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from api.front import SAFE_METHODS
from api.guards import GuardedRoute, RouteGuard

SOMETHING = "1"
"""Fits every parameter of a path, and names nothing that there is."""


@dataclass(frozen=True)
class Way:
    """One method of one route; ``guard`` is None for a route that declares none, ``module`` is where its code is."""

    method: str
    path: str
    guard: RouteGuard | None
    viewer: bool
    module: str

    @property
    def name(self) -> str:
        """How tables of tests call it."""
        return f"{self.method} {self.path}"

    @property
    def changes(self) -> bool:
        """Whether the method may change something."""
        return self.method not in SAFE_METHODS

    @property
    def address(self) -> str:
        """A path that leads there."""
        return re.sub(r"{[^}]*}", SOMETHING, self.path)


def ways(app: FastAPI) -> Iterator[Way]:
    """Yield every way into an app."""
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        guard, viewer = (route.guard, route.viewer) if isinstance(route, GuardedRoute) else (None, False)
        module = getattr(getattr(route, "endpoint", None), "__module__", "")
        for method in sorted(context.methods or ()):
            yield Way(method, context.path or "", guard, viewer, module)
