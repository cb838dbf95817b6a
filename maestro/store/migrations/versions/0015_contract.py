"""Adds the contract beside the revision, so that releases can tell which newer tables they may use (ADR 41)."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the column; all tables up to now belong to the first contract."""
    op.add_column("alembic_version", sa.Column("contract", sa.BigInteger(), nullable=False, server_default="1"))
