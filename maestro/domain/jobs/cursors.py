"""Where a page of jobs ended, as a text that clients hand back to get the next one."""

import base64
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter

from maestro.domain.moments import Moment

SEPARATOR = " "
MOMENT: TypeAdapter[datetime] = TypeAdapter(Moment)
"""Any other has no moment in UTC, or none that a database keeps."""


@dataclass(frozen=True)
class Cursor:
    """The last job of a page; jobs are listed newest first."""

    created_at: datetime
    job_id: str

    def encode(self) -> str:
        """Return the text for clients; what is in it is nobody's business but ours."""
        text = f"{self.created_at.isoformat()}{SEPARATOR}{self.job_id}"
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> "Cursor":
        """Read a text of ours; raises ``ValueError`` for any other."""
        try:
            moment, _, job_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(SEPARATOR)
            created_at = MOMENT.validate_python(datetime.fromisoformat(moment))
        except ValueError:
            raise ValueError("this is not a cursor from an earlier answer") from None
        if not job_id:
            raise ValueError("this is not a cursor from an earlier answer")
        return cls(created_at, job_id)
