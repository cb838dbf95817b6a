"""The loop of model and tool calls, and when it ends."""

from maestro.domain.jobs.flow import ModelOutcome
from workflows.steps import model_loop


class Script:
    """Finishes calls with the tools that each one asks for, by its number; a final one that is made now asks for none.

    ``kept`` are the calls that an earlier run of the job finished: they say what they said then.
    """

    def __init__(self, *tools: tuple[str, ...], kept: int = 0) -> None:
        self._tools = tools
        self._kept = kept
        self.made: list[str] = []

    async def ask_model(self, number: int, *, final: bool) -> ModelOutcome:
        self.made.append(f"model-{number}" + (" final" if final else ""))
        wanted = self._tools[number - 1] if number <= len(self._tools) else ()
        return ModelOutcome(
            number=number,
            model="m",
            provider="p",
            account="a",
            input_tokens=1,
            output_tokens=1,
            cost_usd=None,
            tools=() if final and number > self._kept else wanted,
        )

    async def call_tool(self, number: int, place: int, name: str) -> None:
        self.made.append(f"{name}-{number}-{place}")


async def test_after_so_many_rounds_the_model_has_to_answer() -> None:
    script = Script(("t",), ("t", "u"), ("t",))
    assert await model_loop(script, 2) == 3
    assert script.made == ["model-1", "t-1-0", "model-2", "t-2-0", "u-2-1", "model-3 final"]


async def test_a_call_of_an_earlier_run_that_allowed_more_rounds_is_no_answer() -> None:
    script = Script(("t",), ("t",), ("t",), kept=3)
    assert await model_loop(script, 1) == 4
    assert script.made[-1] == "model-4 final"
