"""Puts the enabled connectors together: who has webhooks is served on the web connector's port."""

from collections.abc import Sequence

from connectors.base import Connector, ConnectorContext, HasRoutes
from connectors.web import WebConfig, WebConnector
from maestro.domain.errors import ConfigurationError


def assemble(
    web: WebConfig | None, context: ConnectorContext, others: Sequence[Connector] = ()
) -> tuple[Connector, ...]:
    """Return the connectors to run; ``others`` are the platforms', already built.

    Raises ``ConfigurationError`` when a platform needs webhooks and the web connector that receives them is off.
    """
    webhooks = {connector.platform: connector.routes() for connector in others if isinstance(connector, HasRoutes)}
    if web is None:
        if webhooks:
            raise ConfigurationError(f"{', '.join(sorted(webhooks))} needs webhooks: set web.enabled to true.")
        return tuple(others)
    return (WebConnector(web, context, platforms=webhooks), *others)
