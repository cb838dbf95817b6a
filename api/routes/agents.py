"""REST routes of agents: their edits and versions, their tokens, and the channels that are bound to them.

See docs/decisions.md: route guards.
"""

from http import HTTPStatus

from api.guards import OPERATOR
from api.routes.operation_router import OperationAPIRouter
from api.routes.surroundings import Number, Parts
from maestro.operations.agents import AgentOperations, BindingOperations, TokenOperations

agents = OperationAPIRouter("agents")
agents.serve("GET", "", AgentOperations.list, "list_agents")
agents.serve("POST", "", AgentOperations.add, "make_agent")
agents.serve("GET", "/{slug}", AgentOperations.show, "show_agent")
agents.serve("PATCH", "/{slug}", AgentOperations.change, "change_agent")
agents.serve("DELETE", "/{slug}", AgentOperations.remove, "remove_agent")
agents.serve("GET", "/{slug}/versions", AgentOperations.versions, "list_versions")
agents.serve("GET", "/{slug}/versions/{number}", AgentOperations.version, "show_version")
agents.serve("POST", "/{slug}/rollback", AgentOperations.roll_back, "roll_back")

tokens = OperationAPIRouter("tokens", tag="agents", prefix="/api/agents/{slug}/tokens")
tokens.serve("GET", "", TokenOperations.list, "list_tokens")
tokens.serve("POST", "", TokenOperations.add, "make_token")


@tokens.delete("/{token_id}", status_code=HTTPStatus.NO_CONTENT)
def revoke_token(parts: Parts, slug: str, token_id: Number) -> None:
    """Revoke a token: from its next request on it opens nothing."""
    parts.tokens.revoke(slug, token_id, OPERATOR)


bindings = OperationAPIRouter("bindings")
bindings.serve("GET", "", BindingOperations.list, "list_bindings")
bindings.serve("POST", "", BindingOperations.add, "bind_channel")
bindings.serve("PATCH", "/{binding_id}", BindingOperations.change, "change_binding")
bindings.serve("DELETE", "/{binding_id}", BindingOperations.remove, "free_channel")
