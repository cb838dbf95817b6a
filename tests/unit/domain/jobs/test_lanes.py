"""A lane is a channel or thread, and the user too where conversations are kept apart by user.

See docs/invariants.md: lanes.
"""

from itertools import combinations

from maestro.domain.conversations.conversation import conversation_key
from maestro.domain.messages import Address, lane_key

PLACES = [
    Address(platform="discord", channel="a"),
    Address(platform="slack", channel="a"),
    Address(platform="discord", account="second", channel="a"),
    Address(platform="discord", channel="b"),
    Address(platform="discord", channel="a", thread="t"),
    Address(platform="discord", channel="a/t"),
    Address(platform="discord", channel="a%2Ft"),
    Address(platform="discord", channel="a/", thread="t"),
    Address(platform="discord", channel="a", thread="/t"),
]


def test_every_place_has_a_lane_of_its_own() -> None:
    for one, other in combinations(PLACES, 2):
        assert lane_key(one, None) != lane_key(other, None), (one, other)
        assert conversation_key(1, one, None) != conversation_key(1, other, None), (one, other)


def test_the_same_place_is_the_same_lane() -> None:
    for place in PLACES:
        assert lane_key(place, None) == lane_key(place.model_copy(), None)


def test_users_share_a_lane_unless_the_channel_is_keyed_by_user() -> None:
    place = PLACES[0]
    assert lane_key(place, "ada") != lane_key(place, "bob")
    assert lane_key(place, "ada") != lane_key(place, None)
    assert conversation_key(1, place, "ada") != conversation_key(1, place, "bob")
    assert conversation_key(1, place, None) != conversation_key(2, place, None)


def test_threads_of_a_channel_share_its_outbound_lane() -> None:
    assert PLACES[0].outbound_lane == PLACES[4].outbound_lane
    assert PLACES[0].outbound_lane != PLACES[3].outbound_lane
