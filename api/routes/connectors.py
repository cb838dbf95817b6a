"""Connectors: our accounts on platforms, how each does, and channels to which nothing is sent."""

from api.routes.operation_router import OperationAPIRouter
from maestro.operations.connectors import ConnectorOperations

ONE = "/{platform}/{account}"

router = OperationAPIRouter("connectors")
router.serve("GET", "", ConnectorOperations.list, "list_connectors")
router.serve("POST", "", ConnectorOperations.add, "add_connector")
router.serve("GET", "/disabled-channels", ConnectorOperations.disabled_channels, "list_disabled_channels")
router.serve("GET", ONE, ConnectorOperations.show, "show_connector")
router.serve("PATCH", ONE, ConnectorOperations.change, "change_connector")
router.serve("DELETE", ONE, ConnectorOperations.remove, "remove_connector")
router.serve("POST", f"{ONE}/channels/{{channel}}/enable", ConnectorOperations.enable_channel, "enable_channel")
