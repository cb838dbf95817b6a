"""Editions: whether rows that much is made of, again and again, are still those that it was made of."""

from typing import NamedTuple

from sqlmodel import Field, SQLModel


class Edition(SQLModel, table=True):
    """The edition of one kind of rows; triggers write it, whoever changes the rows.

    ``stamp`` is a number drawn at random for every change, so that none comes back: not after a change that was rolled
    back, nor with an older copy of the file.
    """

    __tablename__ = "editions"

    name: str = Field(primary_key=True)
    stamp: int


class Editions(NamedTuple):
    """The stamps of all editions; None for rows that nobody ever changed."""

    accounts: int | None = None
    agent_channels: int | None = None
    agents: int | None = None
    bot_instances: int | None = None
    compactions: int | None = None
    memory_state: int | None = None
    schedules: int | None = None
    skills: int | None = None
