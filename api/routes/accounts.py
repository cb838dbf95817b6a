"""Accounts at providers of models: their state, and how an operator changes them."""

from api.routes.operation_router import OperationAPIRouter
from maestro.operations.accounts import AccountOperations

router = OperationAPIRouter("accounts")
router.serve("GET", "", AccountOperations.list, "list_accounts")
router.serve("POST", "", AccountOperations.add, "add_account")
router.serve("GET", "/{name:path}", AccountOperations.show, "show_account")
router.serve("PATCH", "/{name:path}", AccountOperations.change, "change_account")
router.serve("DELETE", "/{name:path}", AccountOperations.remove, "remove_account")
