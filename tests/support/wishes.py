"""People who wish to be let in, written into a store as the door would write them."""

from datetime import timedelta

from maestro.domain.people.people import Pairing
from tests.support.job_rows import JobRows

LIFETIME = timedelta(minutes=60)


def wish(rows: JobRows, user: str, code: str) -> Pairing:
    """Have somebody on Slack wish to be let in."""
    with rows.store.begin() as tx:
        return tx.users.pairings.add_pairing(
            Pairing(
                code=code,
                platform="slack",
                account="default",
                channel=f"D-{user}",
                user_id=user,
                user_name=user.title(),
                created_at=tx.now,
                expires_at=tx.now + LIFETIME,
                told_at=tx.now,
            )
        )
