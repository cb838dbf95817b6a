"""Substitutions: answers by another model or account than the agent's first choice, and their reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from maestro.domain.llm.accounts import AccountChoice, AccountModel, AccountStatus, ModelAccount, can_serve
from maestro.domain.llm.calls import CallState, LLMCall
from maestro.domain.llm.errors import AuthenticationFailed
from maestro.domain.llm.prompts import CallPurpose
from maestro.domain.values import View


class Substitution(View):
    """The ``model`` and ``account`` that answered, the ``wanted`` model (empty for any), and the ``reason``."""

    wanted: str
    model: str
    account: str
    reason: str


@dataclass(frozen=True)
class FirstChoice:
    """The first choice of a model call: a model, empty for the accounts' defaults, and the accounts.

    ``cheaper`` is the fallback model for a used-up budget, ``limits`` are the cool-downs at the start of the call.
    """

    model: str
    accounts: Sequence[ModelAccount]
    limits: Mapping[AccountModel, datetime]
    cheaper: str = ""


def final_answer(calls: Sequence[LLMCall]) -> LLMCall | None:
    """Return the last call with an answer for the user, None without one."""
    answers = [one for one in calls if one.purpose is CallPurpose.ANSWER and one.state is CallState.ANSWERED]
    return answers[-1] if answers else None


def substitution(calls: Sequence[LLMCall], first: FirstChoice) -> Substitution | None:
    """Return the substitution of the last answer, None if the first choice answered.

    None also if its account is unknown: the demo model answered, or the accounts have changed since.
    """
    answer = final_answer(calls)
    if answer is None:
        return None
    first = replace(first, accounts=[one for one in first.accounts if one.created_at <= answer.started_at])
    chosen = _first_choice_accounts(first)
    known = any(one.name == answer.account for one in first.accounts)
    if not known or any(_matches(answer, one) for one in chosen):
        return None
    return Substitution(
        wanted=first.model, model=answer.model, account=answer.account, reason=_reason(calls, answer, first, chosen)
    )


def _first_choice_accounts(first: FirstChoice) -> Sequence[AccountChoice]:
    """Return the accounts of the first choice: those with the lowest priority that serve the model."""
    able = [one for one in first.accounts if not first.model or can_serve(one, first.model)]
    lowest = min((one.priority for one in able), default=0)
    return [
        AccountChoice(one, one.own_name(first.model) if first.model else one.model)
        for one in able
        if one.priority == lowest
    ]


def _matches(answer: LLMCall, choice: AccountChoice) -> bool:
    # A provider may answer with the release that a name stands for, such as gpt-4o-2024-08-06.
    return answer.account == choice.account.name and answer.model.startswith(choice.model)


def _reason(calls: Sequence[LLMCall], answer: LLMCall, first: FirstChoice, chosen: Sequence[AccountChoice]) -> str:
    failed = [
        f"{one.account or one.model} failed with {one.error}"
        for one in calls
        if (one.purpose, one.number, one.state) == (answer.purpose, answer.number, CallState.FAILED)
    ]
    if failed:
        return ", ".join(dict.fromkeys(failed))
    if not chosen:
        return f"no account takes {first.model}"
    reasons = [_unavailable_reason(one, first.limits) for one in chosen]
    if all(reasons):
        return ", ".join(reasons)
    if first.cheaper and answer.model.startswith(first.cheaper.rpartition("/")[2]):
        return "a daily budget was used up, so budgets.fallbackModel answered"
    return "the first choice could not be asked then: it was busy, or its circuit breaker was open"


def _unavailable_reason(choice: AccountChoice, limits: Mapping[AccountModel, datetime]) -> str:
    account = choice.account
    if account.status is AccountStatus.DISABLED:
        refused = account.last_error == AuthenticationFailed.__name__
        return f"{account.name} is disabled{': its key was refused' if refused else ''}"
    until = max((limits[key] for key in choice.keys if key in limits), default=None)
    return f"{account.name} was in cool-down until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
