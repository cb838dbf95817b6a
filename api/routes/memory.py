"""What an agent remembers: its facts and states, for operators to look at and to mend."""

from http import HTTPStatus

from api.guards import OPERATOR
from api.routes.operation_router import OperationAPIRouter
from api.routes.surroundings import Parts
from maestro.operations.memory import MemoryOperations

router = OperationAPIRouter("memory", prefix="/api/agents/{slug}/memory")
router.serve("GET", "", MemoryOperations.show, "show_memory")


@router.delete("", status_code=HTTPStatus.NO_CONTENT)
def clear_memory(parts: Parts, slug: str) -> None:
    """Forget everything the agent knows, facts and states."""
    parts.memory.clear(slug, OPERATOR)


router.serve("POST", "/facts", MemoryOperations.add_fact, "add_fact", HTTPStatus.CREATED)
router.serve("PATCH", "/facts/{number}", MemoryOperations.change_fact, "change_fact")
router.serve("DELETE", "/facts/{number}", MemoryOperations.forget_fact, "forget_fact")
router.serve("PUT", "/state/{key:path}", MemoryOperations.put_state, "put_state")
router.serve("DELETE", "/state/{key:path}", MemoryOperations.forget_state, "forget_state")
