"""The rounds of tool calls as the model reads them."""

from dataclasses import replace

from maestro.domain.context.history import (
    CUT_MARK,
    LEFT_OUT,
    MOST_CALLS,
    ToolResult,
    ToolRound,
    build_round,
    build_tool_turns,
    limit_calls,
)
from maestro.domain.llm.models import IMAGE_TOKENS, estimate_messages
from maestro.domain.llm.prompts import ImageRef, PromptMessage, Role, ToolCall
from maestro.domain.media import MAX_IMAGES
from maestro.domain.tools import call_id

LONG = "A sentence of the result. " * 400


def asked(number: int, *results: str) -> ToolRound:
    calls = tuple(
        ToolCall(id=call_id(number, place), name="web_search", arguments='{"query": "x"}')
        for place, _ in enumerate(results)
    )
    return ToolRound("let me look", calls, tuple(map(ToolResult, results)))


def test_each_round_is_an_answer_with_its_calls_and_a_result_for_each_of_them() -> None:
    found = build_tool_turns([asked(1, "one", "two"), asked(2, "three")], room=10_000)
    assert [turn.role for turn in found] == [Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.ASSISTANT, Role.TOOL]
    assert [turn.content for turn in found if turn.role is Role.TOOL] == ["one", "two", "three"]
    assert [turn.call_id for turn in found if turn.role is Role.TOOL] == ["call_1_0", "call_1_1", "call_2_0"]
    assert [call.id for call in found[0].tool_calls] == ["call_1_0", "call_1_1"]
    assert found[0].content == "let me look"


def test_the_newest_results_keep_their_length_and_older_ones_are_cut() -> None:
    rounds = [asked(1, LONG), asked(2, LONG)]
    everything = estimate_messages(build_tool_turns(rounds, room=100_000))
    found = build_tool_turns(rounds, room=everything - 800)
    assert found[3].content == LONG
    assert found[1].content.endswith(CUT_MARK)
    assert estimate_messages(found) <= everything - 800


def test_short_results_stay_and_the_longest_is_cut_first() -> None:
    old, longer, newest = "an old but short result", LONG * 2, LONG * 5
    rounds = [asked(1, old, LONG), asked(2, longer), asked(3, newest)]
    everything = estimate_messages(build_tool_turns(rounds, room=100_000))
    for missing, cut in ((2_000, [newest]), (7_000, [longer, newest]), (14_000, [LONG, longer, newest])):
        found = build_tool_turns(rounds, room=everything - missing)
        results = [turn.content for turn in found if turn.role is Role.TOOL]
        whole = [one for one in (old, LONG, longer, newest) if one not in cut]
        assert [one for one in results if not one.endswith(CUT_MARK)] == whole
        assert estimate_messages(found) <= everything - missing


def test_the_newest_pictures_are_shown_as_far_as_there_is_room() -> None:
    def shown(room: int) -> list[int]:
        calls = asked(1, "one").calls
        images = tuple(ImageRef(digest=str(number), content_type="image/png") for number in range(4))
        rounds = [ToolRound("", calls, (ToolResult("one", images),)) for _ in range(4)]
        found: tuple[PromptMessage, ...] = build_tool_turns(rounds, room)
        assert estimate_messages(found) <= room
        return [len(turn.images) for turn in found if turn.role is Role.TOOL]

    assert shown(100_000) == [0, MAX_IMAGES - 8, 4, 4]
    assert shown(6 * IMAGE_TOKENS) == [0, 0, 0, 2]


def test_a_result_without_room_is_named_as_left_out() -> None:
    found = build_tool_turns([asked(1, LONG), asked(2, LONG)], room=100)
    assert found[1].content == LEFT_OUT
    assert estimate_messages(found) < 200


def test_parallel_results_share_the_room_fairly() -> None:
    found = build_tool_turns([asked(1, "short", LONG, LONG)], room=1_500)
    assert found[1].content == "short"
    assert found[2].content.endswith(CUT_MARK)
    assert abs(len(found[2].content) - len(found[3].content)) < 0.1 * len(found[2].content)


def test_an_answer_that_asks_for_too_much_at_once_gets_the_first_of_it() -> None:
    calls = [ToolCall(id=call_id(1, place), name="t", arguments="{}") for place in range(MOST_CALLS + 5)]
    assert limit_calls(calls) == tuple(calls[:MOST_CALLS])
    one = build_round("", calls, [ToolResult("fine")] * MOST_CALLS)
    assert (one.calls, one.results[0].text) == (tuple(calls[:MOST_CALLS]), "fine")
    assert "5 further calls of this answer were not made" in one.results[-1].text


def test_posts_stand_before_the_answer_they_were_told_to_and_are_never_cut() -> None:
    posts = "posts " * 300
    rounds = [replace(asked(1, LONG), chat=posts), asked(2, "short")]
    found = build_tool_turns(rounds, room=0)
    assert [turn.role for turn in found[:3]] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert (found[0].content, found[0].chat) == (posts, True)
    assert found[2].content == LEFT_OUT
    room = estimate_messages(build_tool_turns(rounds, room=100_000)) - 800
    assert estimate_messages(build_tool_turns(rounds, room)) <= room
