"""The full texts of one job, for its page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from maestro.domain.context.layers import LayerSize
from maestro.domain.messages import InboxRow


@dataclass(frozen=True)
class RecordedAnswer:
    """The answer of a job; ``superseded`` means that a restarted job wrote a newer answer.

    ``at`` is None for a job without a conversation, because the time of its answer is not stored.
    """

    text: str
    at: datetime | None = None
    superseded: bool = False


@dataclass(frozen=True)
class JobPageTexts:
    """The incoming message, the answer and the sizes of the prompt's layers; None or empty for a missing part.

    ``ahead`` is the id of the job before this one in the same lane, empty unless this job waits for its lane.
    """

    message: InboxRow | None = None
    answer: RecordedAnswer | None = None
    layers: Sequence[LayerSize] = ()
    ahead: str = ""
