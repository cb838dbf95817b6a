"""The order of the middleware around every model call; it is written here and nowhere else."""

from datetime import timedelta

from maestro.domain.models import price
from maestro.llm.estimates import Estimates
from maestro.llm.middleware.deadline import deadline
from maestro.llm.middleware.recorder import Recorder
from maestro.llm.middleware.refuse_empty import RefuseEmpty
from maestro.llm.middleware.replay_guard import ReplayGuard
from maestro.llm.middleware.stop_guard import StopGuard, StopWatch
from maestro.llm.middleware.validator import Validator
from maestro.llm.protocols import Account, LLMClient, chain
from maestro.settings import Settings
from maestro.store.store import Store


class Nobody:
    """A directory without accounts."""

    def find(self, name: str) -> Account | None:
        """Find nobody."""
        del name
        return None


def build_chain(transport: LLMClient, default_model: str, store: Store, settings: Settings) -> LLMClient:
    """Return the client that activities call.

    An answer that we hold is returned before anything else happens. Then a person can stop the call. What the
    recorder commits is exactly what goes out, so nothing that changes a request may stand inside of it; what refuses
    an answer must stand there, or a bad answer would be held for good.
    """
    watch = StopWatch(store, settings.jobs.stop_poll_seconds)
    limit = timedelta(seconds=settings.llm.total_timeout_seconds)
    return chain(
        transport,
        lambda inner: ReplayGuard(inner, store),
        lambda inner: StopGuard(inner, watch),
        Validator,
        lambda inner: Recorder(inner, store, Estimates(Nobody(), price)),
        RefuseEmpty,
        deadline(lambda: limit),
    )
