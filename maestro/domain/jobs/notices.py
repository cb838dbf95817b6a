"""What a person hears when a message finally failed: once, briefly, without internals (decision 20)."""

from collections.abc import Mapping

from maestro.domain.jobs.job import FAILURE_NOTICE
from maestro.domain.llm.errors import BudgetExceeded

_NOTICES: Mapping[str, str] = {BudgetExceeded.__name__: BudgetExceeded.notice}


def failure_notice(error: str) -> str:
    """Return what to say of a failure, by the name of its class; most people need to know no more than that."""
    return _NOTICES.get(error, FAILURE_NOTICE)
