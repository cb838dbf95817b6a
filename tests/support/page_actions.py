"""What the pages of the dashboard can change, by who does it in a browser, and a recorder of what was done."""

import re
from dataclasses import dataclass, field

from playwright.async_api import BrowserContext, Response

from api.front import SAFE_METHODS

WORK = frozenset(
    {
        "POST /login",
        "POST /logout",
        "POST /maestro",
        "POST /questions/answer",
        "POST /questions/approve",
        "POST /questions/refuse",
    }
)
"""Done by tests/browser/test_dashboard_work.py."""

REPLAYS = frozenset(
    {
        "POST /queue/batches/{batch_id}/stop",
        "POST /queue/replay",
        "POST /queue/replay/preview",
        "POST /queue/{job_id}/cancel",
        "POST /queue/{job_id}/replay",
        "POST /queue/{job_id}/replay/preview",
    }
)
"""Done by tests/browser/test_dashboard_replays.py."""

THINGS = frozenset(
    {
        "POST /accounts/add",
        "POST /accounts/change",
        "POST /accounts/clients/add",
        "POST /accounts/clients/change",
        "POST /accounts/clients/remove",
        "POST /accounts/connectors/add",
        "POST /accounts/connectors/change",
        "POST /accounts/connectors/disable",
        "POST /accounts/connectors/enable",
        "POST /accounts/connectors/open-channel",
        "POST /accounts/connectors/remove",
        "POST /accounts/disable",
        "POST /accounts/enable",
        "POST /accounts/pairings/approve",
        "POST /accounts/pairings/invite",
        "POST /accounts/pairings/refuse",
        "POST /accounts/people/remove",
        "POST /accounts/remove",
        "POST /agent/{slug}",
        "POST /agent/{slug}/channels",
        "POST /agent/{slug}/channels/remove",
        "POST /agent/{slug}/history/{number}/rollback",
        "POST /agent/{slug}/purge",
        "POST /agent/{slug}/status",
        "POST /agents",
        "POST /agents/tokens",
        "POST /agents/tokens/revoke",
        "POST /conversations/{conversation_id}/close",
        "POST /conversations/{conversation_id}/delete",
        "POST /memory/clear",
        "POST /memory/facts",
        "POST /memory/facts/change",
        "POST /memory/facts/forget",
        "POST /memory/facts/stick",
        "POST /memory/states",
        "POST /memory/states/forget",
        "POST /schedules",
        "POST /schedules/backfill",
        "POST /schedules/change",
        "POST /schedules/pause",
        "POST /schedules/preview",
        "POST /schedules/remove",
        "POST /schedules/resume",
        "POST /schedules/run",
        "POST /settings/change",
        "POST /settings/reset",
        "POST /skills",
        "POST /skills/try",
        "POST /skills/{slug}",
        "POST /skills/{slug}/disable",
        "POST /skills/{slug}/enable",
        "POST /skills/{slug}/remove",
        "POST /webhooks",
        "POST /webhooks/change",
        "POST /webhooks/disable",
        "POST /webhooks/enable",
        "POST /webhooks/remove",
        "POST /webhooks/rotate",
    }
)
"""Done by tests/browser/test_dashboard_things.py."""


@dataclass
class Recorder:
    """Notes which of some actions browsers did, with success; ``actions`` are a method and a path with parameters."""

    actions: frozenset[str]
    done: set[str] = field(default_factory=set)

    def watch(self, context: BrowserContext) -> None:
        """Note what the pages of a context do from now on."""
        context.on("response", self._note)

    @property
    def left(self) -> set[str]:
        """Return what nobody did."""
        return set(self.actions - self.done)

    def _note(self, response: Response) -> None:
        asked = response.request
        if asked.method in SAFE_METHODS or not response.status < 400:
            return
        path = re.sub(r"^\w+://[^/]+|[?#].*", "", asked.url)
        # A path with a word where another one has a parameter is meant by its word.
        fitting = sorted(
            (one for one in self.actions if _fits(one, asked.method, path)), key=lambda one: one.count("{")
        )
        self.done.update(fitting[:1])


def _fits(action: str, method: str, path: str) -> bool:
    wanted, _, pattern = action.partition(" ")
    words = re.split(r"{[^}]*}", pattern)
    return method == wanted and re.fullmatch("[^/]+".join(map(re.escape, words)), path) is not None
