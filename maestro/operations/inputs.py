"""What several operations share: the types of arguments, and the store."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from maestro.domain.columns import LARGEST
from maestro.domain.llm.accounts import StoredKey
from maestro.store.store import Store

LIMIT = 100
Limit = Annotated[int, Field(ge=1, le=1000)]
"""The length of a page. REST enforces the maximum; a command may exceed it."""

RowId = Annotated[int, Field(ge=1, le=LARGEST)]
"""The number of a row."""

RowCursor = Annotated[str | None, Field(pattern=r"^\d{1,18}$")]
"""The cursor of a list that is in the order of its row ids."""

EncryptSecret = Callable[[str], StoredKey]
"""Return a secret encrypted, or a reference as it is, for the store; raises ``ConfigurationError``."""


class StoreOperations:
    """Operations that need nothing but the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
