"""REST routes of agents, accounts, clients, connectors, users, reports, webhooks (docs/decisions.md: route guards)."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from api.credentials import signed_request
from api.errors import InvalidRequest
from api.guards import OPERATOR, Number, Parts, SignatureRoute, request_access
from api.routes.operation_router import OperationAPIRouter, file_responses
from maestro.domain.llm.usage_views import LatencyQuery, UsageTable
from maestro.domain.people.views import AuditFilter
from maestro.domain.schedules.edits import BackfillRequest
from maestro.domain.schedules.views import BackfillView
from maestro.domain.webhooks.template import InvalidJson, read_payload
from maestro.domain.webhooks.webhook import BadSignature, DeliveryResult
from maestro.operations.accounts import AccountOperations
from maestro.operations.agents import AgentOperations, BindingOperations, TokenOperations
from maestro.operations.background import ScheduleOperations, WebhookOperations
from maestro.operations.connectors import ConnectorOperations
from maestro.operations.people import ClientOperations, PeopleOperations
from maestro.operations.reports import AuditOperations, UsageOperations

agents = OperationAPIRouter("agents")
agents.serve_operation("GET", "", AgentOperations.list, "list_agents")
agents.serve_operation("POST", "", AgentOperations.add, "make_agent")
agents.serve_operation("GET", "/{slug}", AgentOperations.show, "show_agent")
agents.serve_operation("PATCH", "/{slug}", AgentOperations.change, "change_agent")
agents.serve_operation("DELETE", "/{slug}", AgentOperations.remove, "remove_agent")
agents.serve_operation("GET", "/{slug}/versions", AgentOperations.versions, "list_versions")
agents.serve_operation("GET", "/{slug}/versions/{number}", AgentOperations.version, "show_version")
agents.serve_operation("POST", "/{slug}/rollback", AgentOperations.roll_back, "roll_back")

tokens = OperationAPIRouter("tokens", tag="agents", prefix="/api/agents/{slug}/tokens")
tokens.serve_operation("GET", "", TokenOperations.list, "list_tokens")
tokens.serve_operation("POST", "", TokenOperations.add, "make_token")


@tokens.delete("/{token_id}", status_code=HTTPStatus.NO_CONTENT)
def revoke_token(parts: Parts, slug: str, token_id: Number) -> None:
    """Revoke a token of an agent; Maestro then refuses every request with the token."""
    parts.tokens.revoke(slug, token_id, OPERATOR)


bindings = OperationAPIRouter("bindings")
bindings.serve_operation("GET", "", BindingOperations.list, "list_bindings")
bindings.serve_operation("POST", "", BindingOperations.add, "bind_channel")
bindings.serve_operation("PATCH", "/{binding_id}", BindingOperations.change, "change_binding")
bindings.serve_operation("DELETE", "/{binding_id}", BindingOperations.remove, "free_channel")

accounts = OperationAPIRouter("accounts")
accounts.serve_operation("GET", "", AccountOperations.list, "list_accounts")
accounts.serve_operation("POST", "", AccountOperations.add, "add_account")
accounts.serve_operation("GET", "/{name:path}", AccountOperations.show, "show_account")
accounts.serve_operation("PATCH", "/{name:path}", AccountOperations.change, "change_account")
accounts.serve_operation("DELETE", "/{name:path}", AccountOperations.remove, "remove_account")

clients = OperationAPIRouter("clients")
clients.serve_operation("GET", "", ClientOperations.list, "list_clients")
clients.serve_operation("POST", "", ClientOperations.add, "add_client")
clients.serve_operation("GET", "/{name:path}", ClientOperations.show, "show_client")
clients.serve_operation("PATCH", "/{name:path}", ClientOperations.change, "change_client")
clients.serve_operation("DELETE", "/{name:path}", ClientOperations.remove, "remove_client")

CONNECTOR = "/{platform}/{account}"

connectors = OperationAPIRouter("connectors")
connectors.serve_operation("GET", "", ConnectorOperations.list, "list_connectors")
connectors.serve_operation("POST", "", ConnectorOperations.add, "add_connector")
connectors.serve_operation("GET", "/disabled-channels", ConnectorOperations.disabled_channels, "list_disabled_channels")
connectors.serve_operation("GET", CONNECTOR, ConnectorOperations.show, "show_connector")
connectors.serve_operation("PATCH", CONNECTOR, ConnectorOperations.change, "change_connector")
connectors.serve_operation("DELETE", CONNECTOR, ConnectorOperations.remove, "remove_connector")
connectors.serve_operation(
    "POST", f"{CONNECTOR}/channels/{{channel}}/enable", ConnectorOperations.enable_channel, "enable_channel"
)

people = OperationAPIRouter("people", prefix="/api")
people.serve_operation("GET", "/pairings", PeopleOperations.pairings, "list_pairings")
people.serve_operation("POST", "/pairings/invite", PeopleOperations.invite, "invite", HTTPStatus.CREATED)
people.serve_operation("POST", "/pairings/{pairing}/approve", PeopleOperations.approve, "approve")
people.serve_operation("POST", "/pairings/{pairing}/refuse", PeopleOperations.refuse, "refuse")
people.serve_operation("GET", "/people", PeopleOperations.list, "list_people")
people.serve_operation("DELETE", "/people/{person:path}", PeopleOperations.remove, "remove_person")
people.serve_operation("GET", "/ignored", PeopleOperations.ignored, "list_ignored")

CSV = "text/csv; charset=utf-8; header=present"

audit = OperationAPIRouter("audit", prefix="/api")
audit.serve_operation("GET", "/audit", AuditOperations.list, "list_audit")


@audit.get("/audit.csv", response_class=StreamingResponse, responses=file_responses("text/csv", "The table"))
def export_audit(parts: Parts, query: Annotated[AuditFilter, Query()]) -> StreamingResponse:
    """Export the matching audit entries as CSV, newest first, at most 100,000; no cell is read as a formula."""
    return _csv_file("audit.csv", parts.audit.export(query))


usage = OperationAPIRouter("usage", prefix="/api")
usage.serve_operation("GET", "/usage", UsageOperations.show, "show_usage")


@usage.get("/usage.csv", response_class=StreamingResponse, responses=file_responses("text/csv", "The table"))
def export_usage(parts: Parts, table: Annotated[UsageTable, Query()]) -> StreamingResponse:
    """Export sums of usage as CSV, at most 100,000; spreadsheets read no cell as a formula."""
    return _csv_file(f"usage-by-{table.by}.csv", parts.usage.export(table))


usage.serve_operation("GET", "/usage/latency", UsageOperations.latency, "show_latency")


@usage.get("/usage/latency.csv", response_class=StreamingResponse, responses=file_responses("text/csv", "The table"))
def export_latency(parts: Parts, query: Annotated[LatencyQuery, Query()]) -> StreamingResponse:
    """Export step latencies as CSV: first those of all days together, with an empty day, then those of each day."""
    return _csv_file("latency.csv", parts.usage.export_latency(query))


usage.serve_operation("GET", "/usage/budgets", UsageOperations.budgets, "show_budgets")


def _csv_file(name: str, lines: Iterator[str]) -> StreamingResponse:
    return StreamingResponse(lines, media_type=CSV, headers={"Content-Disposition": f'attachment; filename="{name}"'})


schedules = OperationAPIRouter("schedules")
schedules.serve_operation("GET", "", ScheduleOperations.list, "list_schedules")
schedules.serve_operation("POST", "", ScheduleOperations.add, "add_schedule")
schedules.serve_operation("POST", "/preview", ScheduleOperations.preview, "preview_schedule")
schedules.serve_operation("GET", "/{ref}", ScheduleOperations.show, "show_schedule")
schedules.serve_operation("PATCH", "/{ref}", ScheduleOperations.change, "change_schedule")
schedules.serve_operation("DELETE", "/{ref}", ScheduleOperations.remove, "remove_schedule")
schedules.serve_operation("POST", "/{ref}/trigger", ScheduleOperations.run_now, "trigger_schedule", HTTPStatus.ACCEPTED)


@schedules.post("/{ref}/backfill", status_code=HTTPStatus.ACCEPTED)
def backfill_schedule(parts: Parts, ref: str, backfill: BackfillRequest, response: Response) -> BackfillView:
    """Start a run for each missed time from ``from`` to ``to``, at most 100, one after the other.

    With ``preview`` the response only lists these times, with status 200.
    """
    if backfill.preview:
        response.status_code = HTTPStatus.OK
    return parts.schedules.backfill(ref, backfill, OPERATOR)


webhooks = OperationAPIRouter("webhooks")
webhooks.serve_operation("GET", "", WebhookOperations.list, "list_webhooks")
webhooks.serve_operation("POST", "", WebhookOperations.add, "add_webhook")
webhooks.serve_operation("GET", "/{path}", WebhookOperations.show, "show_webhook")
webhooks.serve_operation("PATCH", "/{path}", WebhookOperations.change, "change_webhook")
webhooks.serve_operation("DELETE", "/{path}", WebhookOperations.remove, "remove_webhook")
webhooks.serve_operation("POST", "/{path}/rotate", WebhookOperations.rotate, "rotate_secret")

endpoint = APIRouter(route_class=SignatureRoute, tags=["webhooks"])


@endpoint.post("/hooks/{path}", status_code=HTTPStatus.ACCEPTED)
def deliver(request: Request, parts: Parts, path: str) -> DeliveryResult:
    """Accept a signed webhook delivery; the response names the job, which is stored by then.

    A repeated delivery gets the same response, with ``duplicate``. 401 for a missing, wrong, old or reused signature,
    404 for an unknown or disabled path, 413 for a large body, 429 and 503 with ``Retry-After``.
    """
    del path  # FastAPI needs the path parameter in the signature; the guard has already used it
    delivery = signed_request(request)
    try:
        payload = read_payload(delivery.body, request.headers.get("content-type", ""))
        return parts.hooks.accept_event(delivery.webhook, delivery.signed, payload)
    except InvalidJson as error:
        raise InvalidRequest(f"{error}; send JSON, or another Content-Type") from None
    except BadSignature as error:
        request_access(request).signatures.reject_request(request, delivery.webhook, str(error))
        raise
