"""The texts of one job, in full, for its page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from maestro.domain.context.layers import LayerSize
from maestro.domain.messages import InboxRow


@dataclass(frozen=True)
class RecordedAnswer:
    """What a job answered; ``superseded`` by that of a restart. Without a conversation nobody kept when it was said."""

    text: str
    at: datetime | None = None
    superseded: bool = False


@dataclass(frozen=True)
class JobPageTexts:
    """The message as it came in, the answer as it is kept, and the layers of the prompt, each where there is one.

    ``ahead`` is the job whose turn comes before in the same lane, for one that waits for its own.
    """

    message: InboxRow | None = None
    answer: RecordedAnswer | None = None
    layers: Sequence[LayerSize] = ()
    ahead: str = ""
