"""Runs the migrations on the connection that ``maestro.store.engine.schema`` passes in."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import String

from maestro.domain.columns import UtcDateTime
from maestro.store.transaction import metadata


def render_item(kind: str, item: Any, autogen: AutogenContext) -> str | Literal[False]:
    """Write Maestro's column types into a new migration as the types they have in the database."""
    if kind != "type":
        return False
    if isinstance(item, UtcDateTime):
        autogen.imports.add("from maestro.domain.columns import UtcDateTime")
        return "UtcDateTime()"
    return "sa.String()" if isinstance(getattr(item, "impl_instance", item), String) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
    render_item=render_item,
)
context.run_migrations()
