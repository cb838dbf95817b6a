"""A lane is where messages wait for each other (docs/invariants.md: lanes)."""

from maestro.domain.messages import Address, LaneKey


def lane_of(address: Address, user_id: str | None) -> LaneKey:
    """Name the lane: platform, account, channel, thread, and the user where the binding keys conversations by user."""
    parts = (address.platform, address.account, address.channel, address.thread, user_id or "")
    return LaneKey("/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts))
