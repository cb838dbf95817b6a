"""REST routes of accounts at providers, clients, connectors, and of people and their pairings."""

from http import HTTPStatus

from api.routes.operation_router import OperationAPIRouter
from maestro.operations.accounts import AccountOperations
from maestro.operations.clients import ClientOperations
from maestro.operations.connectors import ConnectorOperations
from maestro.operations.people import PeopleOperations

accounts = OperationAPIRouter("accounts")
accounts.serve("GET", "", AccountOperations.list, "list_accounts")
accounts.serve("POST", "", AccountOperations.add, "add_account")
accounts.serve("GET", "/{name:path}", AccountOperations.show, "show_account")
accounts.serve("PATCH", "/{name:path}", AccountOperations.change, "change_account")
accounts.serve("DELETE", "/{name:path}", AccountOperations.remove, "remove_account")

clients = OperationAPIRouter("clients")
clients.serve("GET", "", ClientOperations.list, "list_clients")
clients.serve("POST", "", ClientOperations.add, "add_client")
clients.serve("GET", "/{name:path}", ClientOperations.show, "show_client")
clients.serve("PATCH", "/{name:path}", ClientOperations.change, "change_client")
clients.serve("DELETE", "/{name:path}", ClientOperations.remove, "remove_client")

ONE = "/{platform}/{account}"

connectors = OperationAPIRouter("connectors")
connectors.serve("GET", "", ConnectorOperations.list, "list_connectors")
connectors.serve("POST", "", ConnectorOperations.add, "add_connector")
connectors.serve("GET", "/disabled-channels", ConnectorOperations.disabled_channels, "list_disabled_channels")
connectors.serve("GET", ONE, ConnectorOperations.show, "show_connector")
connectors.serve("PATCH", ONE, ConnectorOperations.change, "change_connector")
connectors.serve("DELETE", ONE, ConnectorOperations.remove, "remove_connector")
connectors.serve("POST", f"{ONE}/channels/{{channel}}/enable", ConnectorOperations.enable_channel, "enable_channel")

people = OperationAPIRouter("people", prefix="/api")
people.serve("GET", "/pairings", PeopleOperations.pairings, "list_pairings")
people.serve("POST", "/pairings/invite", PeopleOperations.invite, "invite", HTTPStatus.CREATED)
people.serve("POST", "/pairings/{pairing}/approve", PeopleOperations.approve, "approve")
people.serve("POST", "/pairings/{pairing}/refuse", PeopleOperations.refuse, "refuse")
people.serve("GET", "/people", PeopleOperations.list, "list_people")
people.serve("DELETE", "/people/{person:path}", PeopleOperations.remove, "remove_person")
people.serve("GET", "/ignored", PeopleOperations.ignored, "list_ignored")
