"""The web connector: browsers and programs talk to agents over WebSocket and HTTP on one port."""

from connectors.web.config import WebConfig
from connectors.web.connector import WebConnector

__all__ = ["WebConfig", "WebConnector"]
