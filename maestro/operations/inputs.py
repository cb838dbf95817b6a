"""The argument types and the base class that several groups of operations use."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from maestro.domain.columns import LARGEST
from maestro.domain.llm.accounts import StoredKey
from maestro.store.store import Store

LIMIT = 100
Limit = Annotated[int, Field(ge=1, le=1000)]
"""The most items on one page of a list. REST refuses a higher number than the maximum; a command accepts it."""

RowId = Annotated[int, Field(ge=1, le=LARGEST)]
"""The id of a table row."""

RowCursor = Annotated[str | None, Field(pattern=r"^\d{1,18}$")]
"""The cursor of a list that is ordered by row ids, as text."""

EncryptSecret = Callable[[str], StoredKey]
"""A function that encrypts a secret for the store, and keeps a reference; raises ``ConfigurationError``."""


class StoreOperations:
    """A group of operations that depends only on the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
