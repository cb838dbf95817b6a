"""What models were asked, call by call, for people who want to know exactly."""

from collections.abc import Sequence

from sqlmodel import col, select

from maestro.domain.context.layers import LAYER_SIZES, LayerSize
from maestro.domain.context.views import Seen
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import Job
from maestro.domain.llm.calls import LLMCall, Prompt
from maestro.domain.llm.prompts import TOOL_SPECS, CallPurpose, KeptRequest
from maestro.store.prompts import Prompts
from maestro.store.repository import Repository


class Requests(Repository):
    """Reads only; every method raises ``NotFound`` for a job that does not exist."""

    def calls(self, job_id: str) -> Sequence[LLMCall]:
        """Return every attempt at a job's calls in the order they were made."""
        self._job(job_id)
        return self._session.exec(select(LLMCall).where(LLMCall.job_id == job_id).order_by(col(LLMCall.id))).all()

    def last(self, job_id: str) -> int:
        """Return the id of the call that people mean who name none: the last one for an answer, else the last.

        Raises ``NotFound`` when no model was asked.
        """
        calls = self.calls(job_id)
        if not calls:
            raise NotFound(f"no model was asked anything in job {job_id}")
        answers = [call for call in calls if call.purpose is CallPurpose.ANSWER]
        return (answers or calls)[-1].id or 0

    def seen(self, job_id: str, call_id: int) -> Seen:
        """Return what the model saw in one call, as it was committed before it left.

        Raises ``NotFound`` when it is none of this job, or was deleted with its conversation.
        """
        job, call = self._job(job_id), self._session.get(LLMCall, call_id)
        if call is None or call.job_id != job_id:
            raise NotFound(
                f"job {job_id} has no model call {call_id}; see which it has with: maestro jobs show {job_id}"
            )
        if job.erased:
            raise NotFound(f"what was said in job {job_id} was deleted with its conversation")
        prompts = Prompts(self._link, self._now)
        request = KeptRequest.model_validate_json(prompts.text(call.request))
        return Seen(
            call=call,
            request=request,
            messages=prompts.unpack(request.turns),
            tools=TOOL_SPECS.validate_json(prompts.text(request.tools)) if request.tools else (),
            layers=self._layers(job_id) if call.purpose is CallPurpose.ANSWER else (),
        )

    def _job(self, job_id: str) -> Job:
        job = self._session.get(Job, job_id)
        if job is None:
            raise NotFound(f"job {job_id} does not exist")
        return job

    def _layers(self, job_id: str) -> tuple[LayerSize, ...]:
        kept = self._session.exec(select(Prompt.layers).where(Prompt.job_id == job_id)).first()
        return LAYER_SIZES.validate_json(kept) if kept else ()
