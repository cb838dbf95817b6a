"""What ends a run of a job without ending the job: steps that wait for something outside."""


class Suspended(Exception):
    """These steps cannot go on now; the job is parked and goes on with a new run (docs/adr/0008)."""

    def __init__(self, *steps: str) -> None:
        super().__init__(*steps)
        self.steps = steps
