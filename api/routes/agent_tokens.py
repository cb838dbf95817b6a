"""The tokens by which agents outside are known (docs/decisions.md: route guards)."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Number, Parts
from maestro.domain.agents.tokens import MadeToken, NewToken, TokenPage, token_page
from maestro.domain.columns import LARGEST

LIMIT = 100
MOST = 1000

router = APIRouter(route_class=PasswordRoute, tags=["agents"], prefix="/api/agents/{slug}/tokens")


@router.get("")
def list_tokens(
    parts: Parts,
    slug: str,
    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT,
    cursor: Annotated[int | None, Query(ge=1, le=LARGEST)] = None,
) -> TokenPage:
    """List the tokens of an agent, newest first, those that were revoked too; no token itself is kept."""
    with parts.store.view() as tx:
        return token_page(tx.agent_tokens.of(tx.agents.named(slug), cursor, limit + 1), limit)


@router.post("", status_code=HTTPStatus.CREATED)
def make_token(parts: Parts, slug: str, new: NewToken) -> MadeToken:
    """Make a token for an agent; it is shown only now. 409 for an archived agent."""
    with parts.store.begin() as tx:
        return tx.agent_tokens.make(tx.agents.named(slug), new.name, OPERATOR)


@router.delete("/{token_id}", status_code=HTTPStatus.NO_CONTENT)
def revoke_token(parts: Parts, slug: str, token_id: Number) -> None:
    """Revoke a token: from its next request on it opens nothing."""
    with parts.store.begin() as tx:
        tx.agent_tokens.revoke(tx.agents.named(slug), token_id, OPERATOR)
