"""Pairing: an unknown user gets access by a code; messages sent before reach no model (docs/decisions.md: access)."""

import math
import secrets
from datetime import datetime, timedelta

from maestro.domain.errors import Conflict, NotFound
from maestro.domain.jobs.job import Job
from maestro.domain.messages import PairingCode
from maestro.domain.people.people import (
    GUESS_PERIOD,
    MOST_GUESSES,
    MOST_GUESSES_OF_ALL,
    MOST_PENDING,
    UNKNOWN_USER_REASONS,
    DmPolicy,
    Pairing,
    PairingStatus,
    PersonId,
    new_code,
)
from maestro.domain.precedence import Priority
from maestro.domain.settings.jobs import PairingSettings
from maestro.intake.access import ReceivedMessage, add_notice, new_job, new_job_id, store_dropped
from maestro.store.transaction import Transaction
from maestro.store.users.users import WRONG_CODE

LET_IN = "You are let in. What you send from now on is answered."
AN_OWNER = "You are let in, and an owner."
FULL = f"the user is unknown, and {MOST_PENDING} unknown users wait for access already"
REFUSED = "an operator refused access to the user"
WRONG = (
    "This code is not valid: it may be mistyped, used or too old. Ask the operator for a new one, and send "
    "/pair and the code."
)


def refuse_unknown_user(tx: Transaction, received: ReceivedMessage, policy: DmPolicy, settings: PairingSettings) -> Job:
    """Drop the message of an unknown user; with the policy ``pairing``, send a code to the user if one is due."""
    if policy is not DmPolicy.PAIRING:
        return store_dropped(tx, received, UNKNOWN_USER_REASONS[policy], waits=True)
    pairing, message = tx.users.pairings.find_newest(received.person.id), received.message
    if pairing is not None and pairing.status is PairingStatus.REFUSED:
        return store_dropped(tx, received, REFUSED, waits=True)
    if pairing is not None and pairing.is_open(tx.now):
        job = store_dropped(tx, received, UNKNOWN_USER_REASONS[policy], waits=True)
        if pairing.is_code_due(tx.now):
            tx.users.pairings.record_sent_code(pairing, message.address)
            add_notice(tx, job, _pairing_instructions(tx, pairing))
        return job
    if tx.users.pairings.count_pending() >= MOST_PENDING:
        return store_dropped(tx, received, FULL, waits=True)
    job = store_dropped(tx, received, UNKNOWN_USER_REASONS[policy], waits=True)
    pairing = tx.users.pairings.add_pairing(
        Pairing(
            code=new_code(secrets.choice),
            platform=message.address.platform,
            account=message.address.account,
            channel=message.address.channel,
            user_id=message.user_id,
            user_name=message.user_name,
            created_at=tx.now,
            expires_at=tx.now + timedelta(minutes=settings.expiry_minutes),
            told_at=tx.now,
        )
    )
    add_notice(tx, job, _pairing_instructions(tx, pairing))
    return job


def has_guessed_too_often(tx: Transaction, person: PersonId) -> bool:
    """Return whether this user, or all users together, sent so many wrong codes that no further code is checked."""
    own, total = tx.users.pairings.count_wrong_codes(person, GUESS_PERIOD)
    return own >= MOST_GUESSES or total >= MOST_GUESSES_OF_ALL


def redeem_invitation(tx: Transaction, received: ReceivedMessage, code: PairingCode) -> Job:
    """Give access to the sender of a valid invitation code, and confirm the access; the code itself is not stored."""
    invitation = tx.users.pairings.redeem_invitation(code.text)
    person = received.person.id
    without_code = received.message.model_copy(update={"content": "/pair"})
    job = new_job(tx, received)
    job.inbox_id = tx.inbox.add(without_code, job.id, control="/pair").id
    if invitation is None:
        tx.system.audit.add_entry(str(person), WRONG_CODE, str(person))
        job.notice = WRONG
        return tx.jobs.add(job)
    by = f"invitation of {invitation.created_by}"
    _grant_access(tx, person, received.message.user_name, by, as_owner=invitation.as_owner)
    pairing = tx.users.pairings.find_newest(person)
    if pairing is not None and pairing.status is not PairingStatus.APPROVED:
        tx.users.pairings.settle_pairing(pairing, PairingStatus.APPROVED, by)
    tx.system.audit.add_entry(str(person), "pairing.redeem", str(person), "as owner" if invitation.as_owner else "")
    job.notice = AN_OWNER if invitation.as_owner else LET_IN
    return tx.jobs.add(job)


def approve_pairing(tx: Transaction, number_or_code: str, actor: str, *, as_owner: bool) -> Pairing:
    """Give access to the user of a pairing, which is named by its number or code, and notify the user.

    Raises ``NotFound`` for an unknown pairing, and ``Conflict`` if the user has access already or the code has expired.
    """
    pairing = tx.users.pairings.find_by_number_or_code(number_or_code)
    if pairing.status is PairingStatus.APPROVED:
        raise Conflict(f"pairing {pairing.id} is approved already; `maestro owner add` makes the person an owner")
    if pairing.status is PairingStatus.PENDING and not pairing.is_open(tx.now):
        raise Conflict(f"the code of pairing {pairing.id} has expired; the user gets a new code for the next message")
    person = PersonId(pairing.platform, pairing.user_id)
    _grant_access(tx, person, pairing.user_name, actor, as_owner=as_owner)
    tx.users.pairings.settle_pairing(pairing, PairingStatus.APPROVED, actor)
    tx.system.audit.add_entry(actor, "pairing.approve", str(person), "as owner" if as_owner else "")
    tx.jobs.add(
        Job(
            id=new_job_id(),
            priority=Priority.OWNER,
            notice=AN_OWNER if as_owner else LET_IN,
            created_at=tx.now,
            platform=pairing.platform,
            account=pairing.account,
            channel=pairing.channel,
        )
    )
    return pairing


def refuse_pairing(tx: Transaction, number_or_code: str, actor: str) -> Pairing:
    """Refuse a pairing: later messages of the user are dropped without a reply.

    Raises ``NotFound`` for an unknown pairing, and ``Conflict`` if the pairing was approved already.
    """
    pairing = tx.users.pairings.find_by_number_or_code(number_or_code)
    person = PersonId(pairing.platform, pairing.user_id)
    if pairing.status is PairingStatus.APPROVED:
        raise Conflict(f"pairing {pairing.id} is approved already; `maestro people remove {person}` revokes the access")
    tx.users.pairings.settle_pairing(pairing, PairingStatus.REFUSED, actor)
    tx.system.audit.add_entry(actor, "pairing.refuse", str(person))
    return pairing


def revoke_access(tx: Transaction, person: PersonId, actor: str) -> None:
    """Revoke a user's access for all later messages; raises ``NotFound`` if the user has no access."""
    if not tx.users.pairings.revoke_access(person):
        raise NotFound(f"{person} has no access to remove; `maestro people list` lists the users with access")
    tx.system.audit.add_entry(actor, "people.remove", str(person))


def create_invitation(
    tx: Transaction, settings: PairingSettings, actor: str, *, as_owner: bool
) -> tuple[str, datetime]:
    """Create an invitation for one user; return its code and expiry. Only the code's digest is stored."""
    code = new_code(secrets.choice)
    lifetime = timedelta(minutes=settings.expiry_minutes)
    expires_at = tx.users.pairings.add_invitation(code, lifetime, as_owner=as_owner, actor=actor)
    tx.system.audit.add_entry(actor, "pairing.invite", detail="as owner" if as_owner else "")
    return code, expires_at


def _grant_access(tx: Transaction, person: PersonId, name: str, actor: str, *, as_owner: bool) -> None:
    tx.users.pairings.grant_access(person, name, actor)
    if as_owner and tx.users.owners.add_owner(person, actor):
        tx.system.audit.add_entry(actor, "owner.add", str(person))


def _pairing_instructions(tx: Transaction, pairing: Pairing) -> str:
    minutes = math.ceil((pairing.expires_at - tx.now) / timedelta(minutes=1))
    return (
        f"I do not know you yet, so this was not answered. Tell the operator this code: {pairing.code}. It is valid "
        f"for {minutes} {'minute' if minutes == 1 else 'minutes'}; once you are let in, write again."
    )
