"""How workers run workflows: without the sandbox, which the replay tests keep."""

from temporalio.worker import UnsandboxedWorkflowRunner


def production_runner() -> UnsandboxedWorkflowRunner:
    """Return the runner that workers use; docs/adr says what the sandbox costs and what stands in its place."""
    return UnsandboxedWorkflowRunner()
