"""Clients, and what was spent for them today."""

from api.routes.operation_router import OperationAPIRouter
from maestro.operations.clients import ClientOperations

router = OperationAPIRouter("clients")
router.serve("GET", "", ClientOperations.list, "list_clients")
router.serve("POST", "", ClientOperations.add, "add_client")
router.serve("GET", "/{name:path}", ClientOperations.show, "show_client")
router.serve("PATCH", "/{name:path}", ClientOperations.change, "change_client")
router.serve("DELETE", "/{name:path}", ClientOperations.remove, "remove_client")
