"""The naive flow: one workflow with one activity that calls the model, as in the examples of Temporal's SDK.

It runs in the environment of that peer: ``python flow.py <address>``.
"""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from openai import AsyncOpenAI

QUEUE = "chat"
TIMEOUT = timedelta(seconds=30)


class Activities:
    """The call of the model; Temporal retries it, so the client does not."""

    def __init__(self) -> None:
        self._model = AsyncOpenAI(max_retries=0)

    @activity.defn
    async def ask_model(self, text: str) -> str:
        """Return the model's answer."""
        message = {"role": "user", "content": text}
        answer = await self._model.chat.completions.create(model="gpt-4o-mini", messages=[message])  # type: ignore[list-item]
        return answer.choices[0].message.content or ""


@workflow.defn
class Chat:
    """Answers one message."""

    @workflow.run
    async def run(self, text: str) -> str:
        """Return the answer."""
        return await workflow.execute_activity_method(Activities.ask_model, text, start_to_close_timeout=TIMEOUT)


async def main(address: str) -> None:
    """Run the worker until the process ends."""
    client = await Client.connect(address)
    async with Worker(client, task_queue=QUEUE, workflows=[Chat], activities=[Activities().ask_model]):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
