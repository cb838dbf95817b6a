"""Connectors: our accounts on platforms, how each does, and channels to which nothing is sent (decision 22)."""

from http import HTTPStatus

from fastapi import APIRouter

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.bots.views import (
    ConnectorChange,
    ConnectorPage,
    ConnectorView,
    DisabledChannelPage,
    NewConnector,
    disabled_page,
)
from maestro.domain.messages import Address

router = APIRouter(route_class=PasswordRoute, tags=["connectors"], prefix="/api/connectors")


@router.get("")
def list_connectors(parts: Parts) -> ConnectorPage:
    """List the connectors with their state, last event, lag and last error; no secret is ever returned."""
    return parts.connectors.list()


@router.post("", status_code=HTTPStatus.CREATED)
def add_connector(parts: Parts, new: NewConnector) -> ConnectorView:
    """Add a connector, which is connected at once; its secrets are stored encrypted, or as references."""
    return parts.connectors.add(new, OPERATOR)


@router.get("/disabled-channels")
def list_disabled_channels(parts: Parts) -> DisabledChannelPage:
    """List the channels to which nothing is sent, because their platform refused it for good."""
    with parts.store.view() as tx:
        return disabled_page(tx.channels.disabled())


@router.get("/{platform}/{account}")
def show_connector(parts: Parts, platform: str, account: str) -> ConnectorView:
    """Return a connector."""
    return parts.connectors.show(platform, account)


@router.patch("/{platform}/{account}")
def change_connector(parts: Parts, platform: str, account: str, change: ConnectorChange) -> ConnectorView:
    """Change a connector; 409 for more than `enabled` of one from the configuration."""
    return parts.connectors.change(platform, account, change, OPERATOR)


@router.delete("/{platform}/{account}", status_code=HTTPStatus.NO_CONTENT)
def remove_connector(parts: Parts, platform: str, account: str) -> None:
    """Remove a connector, with its secrets; 409 for one from the configuration."""
    parts.connectors.remove(platform, account, OPERATOR)


@router.post("/{platform}/{account}/channels/{channel}/enable", status_code=HTTPStatus.NO_CONTENT)
def enable_channel(parts: Parts, platform: str, account: str, channel: str) -> None:
    """Send to a channel again; 404 when it is not disabled."""
    parts.connectors.enable_channel(Address(platform=platform, account=account, channel=channel), OPERATOR)
