"""Queries for clients, the customers who pay for answers in channels."""

from collections.abc import Container

from sqlmodel import col, select

from maestro.domain.agents.agent import Agent, AgentChannel
from maestro.domain.errors import Conflict, InvalidEdit, WaitReason
from maestro.domain.jobs.job import Job
from maestro.domain.llm.budgets import Client, ClientChange, NewClient
from maestro.domain.llm.usage import UsageRow
from maestro.store.engine.repository import Repository, require_found
from maestro.store.jobs.jobs import Jobs
from maestro.store.users.audit import Audit


class PayingClients(Repository):
    """Queries for clients, and edits by operators; ``actor`` is recorded in the audit log as the author."""

    def get_client(self, name: str) -> Client:
        """Return the client with this name or slug; raises ``NotFound``."""
        return require_found(self._find_by_name(name) or self._find_by_slug(name), f"there is no client {name!r}")

    def find_id(self, name: str) -> int | None:
        """Return a client's id by name or slug, None for an empty text; raises ``InvalidEdit`` for an unknown one."""
        client = self._find_by_name(name) or self._find_by_slug(name) if name else None
        if name and client is None:
            raise InvalidEdit(f"client: there is no client {name!r}; add it first, or name another")
        return client.id if client is not None else None

    def find_name(self, client_id: int | None) -> str:
        """Return the name of the client with this id; empty for None."""
        client = self._session.get(Client, client_id) if client_id is not None else None
        return client.name if client is not None else ""

    def create_client(self, new: NewClient, actor: str) -> Client:
        """Add a client; raises ``Conflict`` when its name or slug is in use."""
        if self._find_by_name(new.name) is not None:
            raise Conflict(f"there is a client {new.name!r} already; change it, or choose another name")
        if new.name != new.slug and (other := self._find_by_slug(new.name)) is not None:
            raise Conflict(f"{new.name} is the slug of the client {other.name!r}; choose another name")
        self._require_unused_names(new.slug, new.name)
        client = Client(**new.model_dump(by_alias=False))
        self._save_objects(client)
        Audit(self._link, self._now).add_entry(actor, "client.create", client.name)
        return client

    def change_client(self, client: Client, change: ClientChange, actor: str) -> Client:
        """Change a client; raises ``Conflict`` for a configured client, or if the slug is in use."""
        _require_not_configured(client)
        if "slug" in change.model_fields_set and change.slug != client.slug:
            self._require_unused_names(change.slug, client.name)
        different = sorted(name for name in change.model_fields_set if getattr(client, name) != getattr(change, name))
        for name in different:
            setattr(client, name, getattr(change, name))
        if different:
            self._save_objects(client)
            Audit(self._link, self._now).add_entry(actor, "client.change", client.name, ", ".join(different))
        if "daily_budget_usd" in different:
            Jobs(self._link, self._now).wake_for_models(WaitReason.BUDGET)
        return client

    def remove_client(self, client: Client, actor: str) -> None:
        """Remove a client to which no rows refer; raises ``Conflict`` with the reason if rows do."""
        _require_not_configured(client)
        used = self._find_reason_to_keep(client)
        if used:
            raise Conflict(f"client {client.name!r} cannot be removed: {used}")
        self._delete_object(client)
        Audit(self._link, self._now).add_entry(actor, "client.remove", client.name)

    def set_configured(self, new: NewClient) -> Client:
        """Add or update a client as the configuration says; raises ``Conflict`` if another client has the slug."""
        client = self._find_by_name(new.name) or Client(name=new.name)
        if new.slug != client.slug:
            self._require_unused_names(new.slug, new.name)
        for name, value in new.model_dump(by_alias=False).items():
            setattr(client, name, value)
        client.configured = True
        self._save_objects(client)
        return client

    def remove_from_configuration(self, names: Container[str]) -> None:
        """Reset the configured fields of clients that the configuration no longer names."""
        for gone in self._find_all(select(Client).where(Client.configured)):
            if gone.name not in names:
                gone.configured, gone.daily_budget_usd, gone.weight = False, None, 1.0
                self._save_objects(gone)

    def _find_reason_to_keep(self, client: Client) -> str:
        agent = self._find_first(select(Agent.slug).where(Agent.client_id == client.id))
        if agent is not None:
            return f"the agent {agent} names this client; give the agent another client first"
        channel = self._find_first(select(AgentChannel.channel).where(AgentChannel.client_id == client.id))
        if channel is not None:
            return f"the binding of the channel {channel} names this client; give it another one first"
        for column in (col(UsageRow.client_id), col(Job.client_id)):
            if self._find_first(select(column).where(column == client.id).limit(1)) is not None:
                return "there are jobs or usage of this client; remove its budget instead"
        return ""

    def _find_by_name(self, name: str) -> Client | None:
        return self._find_first(select(Client).where(Client.name == name))

    def _find_by_slug(self, slug: str) -> Client | None:
        return self._find_first(select(Client).where(Client.slug == slug, Client.slug != ""))

    def _require_unused_names(self, slug: str, name: str) -> None:
        """Raise ``Conflict`` if the slug is already the slug or the name of a client with another name."""
        taken = self._find_by_slug(slug) or self._find_by_name(slug)
        if taken is not None and taken.name != name:
            raise Conflict(f"the slug {slug} belongs to the client {taken.name!r}; choose another slug")


def _require_not_configured(client: Client) -> None:
    if client.configured:
        raise Conflict(f"client {client.name!r} is set by the configuration; change clients there, and restart Maestro")
