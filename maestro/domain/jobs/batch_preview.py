"""The preview of a batch: which jobs would run, from which step, and what that may cost."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from maestro.domain.jobs.batches import BatchAction
from maestro.domain.jobs.failures import pattern_of
from maestro.domain.jobs.job import NO_EDITS, Job, JobEdits, StepState, edits_of
from maestro.domain.jobs.preview import END, START
from maestro.domain.jobs.replay import edits_refusal, is_script, refusal
from maestro.domain.jobs.steps import OPTIONAL, next_step
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.values import View


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """An attempt at a model call."""

    purpose: CallPurpose
    number: int
    state: CallState
    asks_tools: bool
    cost_usd: float | None


@dataclass(frozen=True)
class BatchCandidate:
    """A job of which somebody asks what would become of it.

    ``newest`` is the job that answers the same message now, ``led_to`` what came of that. ``step`` is its last one and
    how that ended; ``done`` are the results of its finished ones, read only where the last one says too little.
    ``calls`` are its model calls in the order they were made.
    """

    job: Job
    newest: Job
    led_to: Sequence[Job] = ()
    step: tuple[str, StepState] | None = None
    done: Mapping[str, str] = field(default_factory=dict)
    calls: Sequence[CallAttempt] = ()


@dataclass(frozen=True)
class Prices:
    """What one call cost of late, on average in US dollars: by agent, by model, and of all."""

    agents: Mapping[int, float] = field(default_factory=dict)
    models: Mapping[str, float] = field(default_factory=dict)
    overall: float | None = None

    def of(self, agent_id: int | None, model: str = "") -> float | None:
        """Return what a call of this agent, or of the model given instead of its own, may cost; None when unknown."""
        if model:
            return self.models.get(model)
        return self.agents.get(agent_id or 0, self.overall)


@dataclass(frozen=True)
class JobPreview:
    """What would become of one job; ``problem`` is why nothing would."""

    job_id: str
    lane: str
    problem: str = ""
    step: str = ""
    calls: int = 0
    cost_usd: float | None = 0.0


class RefusedGroup(View):
    """Jobs that are refused for one reason, with ``*`` for what differs; ``example`` is one of them."""

    reason: str
    count: int
    example: str


class StepCount(View):
    """How many jobs go on at a step; ``start`` is the top, ``end`` where only the end is missing."""

    step: str
    count: int


class BatchPreview(View):
    """What a batch would do now. Nothing was changed.

    ``matching`` are all that were asked for, of which so many are ``possible``. About so many ``modelCalls`` are paid
    for, those whose answers nobody holds; for about ``costUsd``, which says nothing of the ``unknownCost`` calls of
    which nobody knows the price.
    """

    action: BatchAction
    matching: int
    possible: int
    refused: tuple[RefusedGroup, ...]
    steps: tuple[StepCount, ...]
    model_calls: int
    cost_usd: float | None
    unknown_cost: int


class JobPreviews:
    """Judges the jobs of one batch in their order, by the rules that hold when each has its turn."""

    def __init__(
        self,
        action: BatchAction,
        prices: Prices,
        edits: JobEdits = NO_EDITS,
        agents: Mapping[str, int | None] | None = None,
    ) -> None:
        """``agents`` are those that may answer, by slug, with their ids."""
        self._action = action
        self._prices = prices
        self._edits = edits
        self._agents = agents or {}
        self._agent_id = self._agents.get(edits.agent) if edits.agent is not None else None
        self._restarted: dict[str, str] = {}

    def of(self, prospect: BatchCandidate) -> JobPreview:
        """Say what would become of a job, after those before it."""
        job, lane = prospect.job, prospect.job.lane or ""
        problem = self._problem(prospect)
        if problem:
            return JobPreview(job.id, lane, problem)
        if self._action is BatchAction.RESTART:
            self._restarted[prospect.newest.id] = job.id
        calls = calls_to_pay(self._action, job, prospect.calls)
        return JobPreview(job.id, lane, "", step_of(self._action, prospect), calls, self._cost(prospect, calls))

    def missing(self, job_id: str) -> JobPreview:
        """Say what would become of a job that does not exist."""
        return JobPreview(job_id, "", f"job {job_id} does not exist")

    def _problem(self, prospect: BatchCandidate) -> str:
        job, mode = prospect.job, self._action.mode
        if mode is None:
            return f"job {job.id} is {job.status} already; there is nothing to cancel" if job.status.ended else ""
        before = self._restarted.get(prospect.newest.id)
        if before is not None:
            return f"job {before} of this batch answers the same."
        if job.what_if:
            return f"job {job.id} is a what-if, which is resumed or asked again by itself."
        problem = refusal(job, prospect.newest, mode, prospect.led_to)
        return problem or edits_refusal(job, mode, self._edits) or self._gone(prospect)

    def _gone(self, prospect: BatchCandidate) -> str:
        """Return why the agent does not answer that an operator chose the last time, which a restart keeps."""
        if self._action is not BatchAction.RESTART or self._edits.any:
            return ""
        kept = edits_of(prospect.newest).agent
        return f"agent: {kept}, chosen the last time, is not active" if kept and kept not in self._agents else ""

    def _cost(self, prospect: BatchCandidate, calls: int) -> float | None:
        """Return what so many calls may cost, by those the job made before, else by others; None when unknown."""
        if not calls:
            return 0.0
        known = [call.cost_usd for call in prospect.calls if call.state is CallState.ANSWERED]
        paid = [cost for cost in known if cost is not None]
        if paid and not (self._edits.model or self._edits.agent):
            return sum(paid) / len(paid) * calls
        price = self._prices.of(self._agent_id or prospect.job.agent_id, self._edits.model or "")
        return price * calls if price is not None else None


def calls_to_pay(action: BatchAction, job: Job, calls: Sequence[CallAttempt]) -> int:
    """Return how many model calls a job is likely to pay for.

    A restart asks as often as the job did the first time. A resumed job pays for one call unless it holds its last
    answer; one that asks for tools is not the last.
    """
    if action is BatchAction.CANCEL or job.notice or is_script(job):
        return 0
    answered = {(call.purpose, call.number) for call in calls if call.state is CallState.ANSWERED}
    if action is BatchAction.RESTART:
        return max(1, len(answered))
    answers = [call for call in calls if call.purpose is CallPurpose.ANSWER]
    last = max((call.number for call in answers), default=0)
    held = [call for call in answers if call.number == last and call.state is CallState.ANSWERED]
    return 0 if held and not held[0].asks_tools else 1


def step_of(action: BatchAction, prospect: BatchCandidate) -> str:
    """Return the step at which a job goes on, or that it stands at when it is cancelled."""
    if action is BatchAction.RESTART:
        return START
    step, state = prospect.step or ("", StepState.DONE)
    if action is BatchAction.CANCEL:
        return step or START
    if leaves_open(step, state):
        return step
    return next_step(prospect.job, prospect.done) or END


def leaves_open(step: str, state: StepState) -> bool:
    """Say whether the last step of a job is the one that it goes on with; else what is done tells which that is."""
    return state is not StepState.DONE and step not in OPTIONAL


def build_batch_preview(action: BatchAction, outlooks: Sequence[JobPreview]) -> BatchPreview:
    """Add up what would become of each job."""
    possible = [one for one in outlooks if not one.problem]
    known = [one.cost_usd for one in possible if one.calls and one.cost_usd is not None]
    steps = Counter(one.step for one in possible)
    return BatchPreview(
        action=action,
        matching=len(outlooks),
        possible=len(possible),
        refused=_refused(one for one in outlooks if one.problem),
        steps=tuple(StepCount(step=step, count=count) for step, count in steps.most_common()),
        model_calls=sum(one.calls for one in possible),
        cost_usd=sum(known) if known or not any(one.calls for one in possible) else None,
        unknown_cost=sum(one.calls for one in possible if one.cost_usd is None),
    )


def _refused(outlooks: Iterable[JobPreview]) -> tuple[RefusedGroup, ...]:
    groups: dict[str, list[str]] = {}
    for one in outlooks:
        groups.setdefault(pattern_of(one.problem), []).append(one.job_id)
    by_size = sorted(groups.items(), key=lambda group: -len(group[1]))
    return tuple(RefusedGroup(reason=reason, count=len(ids), example=ids[0]) for reason, ids in by_size)
