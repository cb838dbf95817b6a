"""Types that the operations of several nouns take."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from maestro.domain.columns import LARGEST
from maestro.domain.llm.accounts import StoredKey

LIMIT = 100
Limit = Annotated[int, Field(ge=1, le=1000)]
"""The length of a page. REST holds its callers to it; a command may ask for more."""

RowId = Annotated[int, Field(ge=1, le=LARGEST)]
"""The number of a row."""

RowCursor = Annotated[str | None, Field(pattern=r"^\d{1,18}$")]
"""Where a list goes on that is in the order of its rows."""

EncryptSecret = Callable[[str], StoredKey]
"""Return what the store may hold of a secret or of a reference to one; raises ``ConfigurationError``."""
