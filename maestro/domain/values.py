"""The frozen base of every value that crosses a boundary."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen pydantic value; an unknown field is an error, so a typo never passes silently."""

    model_config = ConfigDict(frozen=True, extra="forbid")
