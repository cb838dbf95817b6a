"""``maestro`` with another flow in the place of the product's own."""

import sys
from typing import Any
from unittest import mock

from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.flows.activities import FusedActivities, IdleActivities
from benchmarks.flows.workflows import FusedFlow, NaiveFlow
from maestro.cli.main import leave, run
from temporal import worker
from temporal.journal import StepJournal

FLOWS = {"naive": NaiveFlow, "fused": FusedFlow}


def main(flow: str, arguments: list[str]) -> int:
    """Run a command with every worker it builds running the given flow."""

    def build(client: Client, **options: Any) -> Worker:
        known = {activity.__name__: activity for activity in options["activities"]}
        [journal] = [each for each in options["interceptors"] if isinstance(each, StepJournal)]
        fused = FusedActivities({name: journal.around(activity) for name, activity in known.items()})
        idle = IdleActivities(known["record_answer"].__self__._store)
        others = [fused.prepare, fused.finish, idle.look_for_media, idle.look_whether_due]
        return Worker(
            client, **{**options, "workflows": (FLOWS[flow],), "activities": [*options["activities"], *others]}
        )

    with mock.patch.object(worker, "Worker", build):
        return run(arguments)


if __name__ == "__main__":
    leave(main(sys.argv[1], sys.argv[2:]))
