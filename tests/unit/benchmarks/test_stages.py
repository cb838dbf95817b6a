"""The stages of a message name modules and steps that exist."""

import importlib
from pathlib import Path

import pytest

from benchmarks.stages import STAGES, STEPS, stage_of

ROOT = Path(__file__).parents[3]
OURS = ("activities/", "connectors/", "maestro/", "temporal/", "workflows/")


@pytest.mark.parametrize("start", [one for starts in STAGES.values() for one in starts if one.startswith(OURS)])
def test_a_stage_names_modules_that_exist(start: str) -> None:
    assert (ROOT / start).is_dir() or (ROOT / f"{start}.py").is_file()


@pytest.mark.parametrize("step", STEPS)
def test_a_step_exists_and_its_stage_too(step: str) -> None:
    module, _, path = step.partition(":")
    owner, _, method = path.partition(".")
    assert callable(getattr(getattr(importlib.import_module(module), owner), method))
    assert STEPS[step] in STAGES


def test_work_of_an_activation_counts_as_that_of_workflows() -> None:
    assert stage_of("temporal.sdk") == "SDK: workflows"
    assert stage_of("asyncio.events") == "other work"
