"""When the same tool call is not made again."""

import pytest

from maestro.domain.tools import ToolRun, ToolState, has_failed_repeatedly
from tests.support.job_rows import MORNING


def called(state: ToolState, error: str = "", tool: str = "fetch", arguments: str = "a") -> ToolRun:
    return ToolRun(
        job_id="j", number=1, place=0, tool=tool, arguments=arguments, state=state, error=error, started_at=MORNING
    )


WANTED = called(ToolState.WAITING)
FAILED = called(ToolState.FAILED, "e")


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ([], False),
        ([FAILED] * 2, False),
        ([FAILED] * 3, True),
        ([FAILED] * 5, True),
        ([FAILED, FAILED, called(ToolState.FAILED, "another")], False),
        ([FAILED, FAILED, FAILED, called(ToolState.DONE)], False),
        ([FAILED, FAILED, called(ToolState.FAILED, "e", arguments="b"), FAILED], True),
        ([FAILED, FAILED, called(ToolState.DONE, tool="calculate"), FAILED], True),
        ([FAILED, FAILED, called(ToolState.FAILED, "e", tool="calculate")], False),
        ([FAILED, FAILED, called(ToolState.REFUSED)], False),
        ([FAILED, FAILED, FAILED, called(ToolState.REFUSED)], True),
    ],
)
def test_three_equal_failures_in_a_row_are_enough(earlier: list[ToolRun], expected: bool) -> None:
    assert has_failed_repeatedly(earlier, WANTED) is expected
