"""Pairings, users who were let in, and messages that were dropped."""

from http import HTTPStatus

from api.routes.operation_router import OperationAPIRouter
from maestro.operations.people import PeopleOperations

router = OperationAPIRouter("people", prefix="/api")
router.serve("GET", "/pairings", PeopleOperations.pairings, "list_pairings")
router.serve("POST", "/pairings/invite", PeopleOperations.invite, "invite", HTTPStatus.CREATED)
router.serve("POST", "/pairings/{pairing}/approve", PeopleOperations.approve, "approve")
router.serve("POST", "/pairings/{pairing}/refuse", PeopleOperations.refuse, "refuse")
router.serve("GET", "/people", PeopleOperations.list, "list_people")
router.serve("DELETE", "/people/{person:path}", PeopleOperations.remove, "remove_person")
router.serve("GET", "/ignored", PeopleOperations.ignored, "list_ignored")
