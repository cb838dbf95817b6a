"""The pages of conversations: listed, read as a chat, searched, exported, ended and deleted."""

import json
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from api.dashboard.conversations import chars_per_text
from maestro.domain.conversations.conversation import Compaction, ConversationStatus
from maestro.domain.media import MediaFile
from maestro.domain.memory.memory import Fact, FactCategory
from maestro.domain.messages import Attachment, InboxRow
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.usage_rows import answered
from tests.unit.api.test_conversations import talk

PAGE, API = "/conversations", "/api/conversations"
XSS = "<img src=x onerror=alert(1)>"
ESCAPED = "&lt;img src=x onerror=alert(1)&gt;"
LINE = re.compile(r'id="conversation-(\d+)"')
MESSAGE = re.compile(r'id="m-(\d+)"')


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def listed(http: httpx.AsyncClient, **query: str) -> list[int]:
    answer = await http.get(PAGE, params=query)
    assert answer.status_code == 200, answer.text
    return [int(number) for number in LINE.findall(answer.text)]


def compact(rows: JobRows, number: int, count: int, summary: str = "They spoke of tea.") -> None:
    """Take the oldest messages out of a conversation, as a compaction does, with a fact learned."""
    rows.clock.go(seconds=1)
    with rows.store.begin() as tx:
        agent = tx.agents.get_agent_by_slug("ada")
        before = tx.conversations.list_messages(number)
        tx.conversations.compactions.archive_messages(number, [one.id or 0 for one in before[:count]])
        tx.conversations.compactions.add_compaction(
            Compaction(
                conversation_id=number,
                agent_id=agent.id or 0,
                summary=summary,
                messages_before=len(before),
                messages_after=len(before) - count,
                tokens_saved=40,
                created_at=tx.now,
            )
        )
        tx.memory.learn_facts(
            agent.id or 0, [Fact(FactCategory.STICKY, f"Grace likes {XSS}")], conversation_id=number, memory_scope=""
        )


async def test_an_empty_list_says_what_to_do(http: httpx.AsyncClient) -> None:
    page = (await http.get(PAGE)).text
    assert "No conversations yet." in page
    assert 'href="/chat"' in page


async def test_long_messages_are_cut_until_one_is_asked_for(rows: JobRows, http: httpx.AsyncClient) -> None:
    long = "All that was in the log. " * 400
    number = talk(rows, "short", *(f"{place}: {long}" for place in range(24)))
    page = (await http.get(f"{PAGE}/{number}")).text
    assert len(MESSAGE.findall(page)) == 50
    assert len(page) < 90_000
    assert '<div class="text" dir="auto">to short</div>' in page
    assert long not in page
    whole = (await http.get(f"{PAGE}/{number}?whole=50")).text
    assert whole.count(long) == 1
    assert f'<a href="{PAGE}/{number}?whole=50#m-50">Show the other 9,' in page
    assert f'<a href="{PAGE}/{number}#m-50">Show its beginning only</a>' in whole


@pytest.mark.parametrize(
    ("lengths", "most"), [([], 0), ([5, 9], 9), ([10, 10], 10), ([2, 30, 30], 9), ([1, 2, 90], 17), ([50] * 4, 5)]
)
def test_what_short_messages_leave_is_for_the_long_ones(lengths: list[int], most: int) -> None:
    assert chars_per_text(lengths, room=20) == most


async def test_the_list_is_filtered_by_what_stands_in_the_address(rows: JobRows, http: httpx.AsyncClient) -> None:
    code, general = talk(rows, "a sure thing", channel="code"), talk(rows, "hello", user="Alan")
    with rows.store.begin() as tx:
        tx.conversations.close_conversation(general)
    assert await listed(http) == [general, code]
    assert await listed(http, status="closed", q="") == [general]
    assert await listed(http, q="SURE") == [code]
    assert await listed(http, agent="ada", platform="web") == [general, code]
    assert await listed(http, channel="code") == [code]
    nothing = (await http.get(PAGE, params={"q": "nowhere"})).text
    assert "No conversation fits." in nothing
    refused = await http.get(PAGE, params={"status": "banana"})
    assert (refused.status_code, 'role="alert"' in refused.text) == (400, True)
    assert (await http.get(PAGE, params={"cursor": "banana"})).status_code == 400


async def test_a_search_is_done_anew_less_often(rows: JobRows, http: httpx.AsyncClient) -> None:
    talk(rows, "hello")
    for query, pause in (({}, 2_000), ({"agent": "ada"}, 2_000), ({"q": "hello"}, 20_000)):
        assert f'data-live="{pause}"' in (await http.get(PAGE, params=query)).text


async def test_pages_of_the_list_miss_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    numbers = [talk(rows, "hello", channel=f"channel-{number}") for number in range(53)]
    page = (await http.get(PAGE)).text
    (following,) = re.findall(r'href="([^"]+)">Next page', page)
    rest = (await http.get(following.replace("&amp;", "&"))).text
    assert [int(one) for one in LINE.findall(page) + LINE.findall(rest)] == numbers[::-1]
    assert "First page" in rest


async def test_the_list_and_its_api_say_the_cost(rows: JobRows, http: httpx.AsyncClient) -> None:
    number, other = talk(rows, "hello", channel="one"), talk(rows, "hello", channel="two")
    job_id = rows.add("more")
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, conversation_id=number)
    answered(rows, job_id, 0.25)
    page = (await http.get(PAGE)).text
    assert re.findall(r'data-label="Cost" class="number">([^<]+)<', page) == ["–", "$0.25"]
    items = (await http.get(API)).json()["items"]
    assert {one["id"]: one["costUsd"] for one in items} == {number: 0.25, other: None}
    assert (await http.get(f"{API}/{number}")).json()["costUsd"] == 0.25


async def test_nothing_that_anybody_wrote_is_markup(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, XSS, channel=XSS.replace(" ", "-"), user=XSS)
    compact(rows, number, 1, summary=XSS)
    for path in (PAGE, f"{PAGE}/{number}", f"{PAGE}/{number}?q={XSS}", f"{PAGE}/{number}/delete"):
        page = (await http.get(path)).text
        assert "<img" not in page, path
        assert ESCAPED in page, path


async def test_a_conversation_reads_as_a_chat_with_its_marks(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "one", "two")
    compact(rows, number, 2)
    talk(rows, "three")
    with rows.store.begin() as tx:
        tx.conversations.mark_superseded([tx.conversations.list_messages(number)[-1].job_id])
    page = (await http.get(f"{PAGE}/{number}")).text
    told = re.findall(r'id="(m|compaction|fact)-\d+"', page)
    assert told == ["m"] * 4 + ["fact", "compaction"] + ["m"] * 2
    assert page.count(">compacted</span>") == 3, "two messages and the mark itself"
    assert page.count(">superseded</span>") == 1
    assert "They spoke of tea." in page
    assert "4 messages became 2" in page
    assert f"/queue/message-{rows.clock.now:%H%M%S}" in page
    assert f"/memory?agent=ada&amp;source={number}" in page


async def test_older_and_newer_messages_are_led_to(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, *(f"text {count}" for count in range(60)))
    compact(rows, number, 90)
    newest = (await http.get(f"{PAGE}/{number}")).text
    assert (len(MESSAGE.findall(newest)), "Newer messages" in newest, "data-live" in newest) == (50, False, True)
    (older,) = re.findall(r'href="([^"]+)">Older messages', newest)
    middle = (await http.get(older)).text
    assert MESSAGE.findall(middle)[-1] == str(int(MESSAGE.findall(newest)[0]) - 1)
    assert ("Newer messages" in middle, "data-live" in middle) == (True, False)
    first = (await http.get(f"{PAGE}/{number}?after=0")).text
    assert ("text 0" in first, "Older messages" in first) == (True, False)
    (newer,) = re.findall(r'href="([^"]+)">Newer messages', first)
    assert MESSAGE.findall((await http.get(newer)).text)[0] == str(int(MESSAGE.findall(first)[-1]) + 1)


async def test_a_fact_leads_to_where_it_was_learned(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "one", "two")
    compact(rows, number, 2)
    talk(rows, *(f"text {count}" for count in range(60)))
    assert "fact-1" not in (await http.get(f"{PAGE}/{number}")).text
    there = (await http.get(f"{PAGE}/{number}?fact=1")).text
    assert ('id="fact-1"' in there, "to two" in there) == (True, True)


async def test_something_is_found_in_one_conversation(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "the pelican is <b>here</b>", "nothing")
    talk(rows, "another pelican", channel="elsewhere")
    compact(rows, number, 2)
    page = (await http.get(f"{PAGE}/{number}", params={"q": "PELICAN"})).text
    assert page.count("<mark>pelican</mark>") == 2
    assert "&lt;b&gt;" in page
    assert "elsewhere" not in page
    assert "No message matches." in (await http.get(f"{PAGE}/{number}", params={"q": "swan"})).text
    found = (await http.get(f"{API}/search", params={"q": "pelican", "conversation": number})).json()["items"]
    assert {one["conversationId"] for one in found} == {number}


async def test_files_are_named(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "look")
    with rows.store.begin() as tx:
        said = tx.conversations.list_messages(number)[0]
        row = tx.inbox.get(said.inbox_id)
        files = (Attachment(id="1", filename=f"{XSS}.png"), Attachment(id="2", filename="gone.pdf"))
        row.attachments = InboxRow.columns(row.message().model_copy(update={"attachments": files}))["attachments"]
        said.has_files = True
        tx.inbox.media.save_file(
            MediaFile(
                inbox_id=row.id or 0, seq=0, digest="d", content_type="image/png", filename=f"{XSS}.png", size=1234
            )
        )
    page = (await http.get(f"{PAGE}/{number}")).text
    assert f"{ESCAPED}.png <small>image/png, 1,234 bytes" in page
    assert "gone.pdf <small>could not be downloaded" in page
    shown = (await http.get(f"{API}/{number}/messages")).json()["items"][0]["files"]
    assert [(one["filename"], one["available"]) for one in shown] == [(f"{XSS}.png", True), ("gone.pdf", False)]


async def test_a_conversation_is_downloaded(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, *(f"text {count}\n## Grace, now" for count in range(120)))
    compact(rows, number, 2)
    whole = await http.get(f"{API}/{number}/export.json")
    assert f'filename="conversation-{number}.json"' in whole.headers["Content-Disposition"]
    body = json.loads(whole.text)
    assert (body["conversation"]["id"], len(body["messages"])) == (number, 240)
    text = await http.get(f"{API}/{number}/export.md")
    assert text.headers["Content-Type"].startswith("text/markdown")
    assert "> text 0\n> ## Grace, now\n" in text.text
    assert len(re.findall(r"^## (Grace|ada), 2026", text.text, re.MULTILINE)) == 240
    assert "240 messages became 238 and this summary:\n\n> They spoke of tea." in text.text
    for ending in ("json", "md"):
        assert (await http.get(f"{API}/999/export.{ending}")).status_code == 404


async def test_a_conversation_is_ended(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "hello")
    led = await http.post(f"{PAGE}/{number}/close")
    assert (led.status_code, led.headers["Location"]) == (303, f"{PAGE}/{number}?done=closed")
    page = (await http.get(led.headers["Location"])).text
    assert "the next message starts a new one" in page
    assert f'action="{PAGE}/{number}/close"' not in page
    again = await http.post(f"{PAGE}/{number}/close")
    assert (again.status_code, f"conversation {number} has ended already" in again.text) == (409, True)
    assert talk(rows, "and now") != number
    with rows.store.view() as tx:
        assert tx.conversations.get(number).status is ConversationStatus.CLOSED
        assert [one.action for one in tx.system.audit.list_latest_entries(1)] == ["conversation.close"]
    other = talk(rows, "hello", channel="other")
    assert (await http.post(f"{API}/{other}/close")).json()["status"] == "closed"
    assert (await http.post(f"{API}/{other}/close")).status_code == 409
    assert (await http.post(f"{API}/999/close")).status_code == 404


async def test_a_conversation_is_deleted_after_a_question(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "hello")
    compact(rows, number, 1)
    asked = (await http.get(f"{PAGE}/{number}/delete")).text
    assert ("2 messages, 1 of them compacted" in asked, "Forget the 1 fact that ada learned" in asked) == (True, True)
    led = await http.post(f"{PAGE}/{number}/delete", data={"facts": "true"})
    assert (led.status_code, led.headers["Location"]) == (303, f"{PAGE}?done=deleted")
    assert "The conversation was deleted" in (await http.get(led.headers["Location"])).text
    with rows.store.view() as tx:
        assert tx.memory.search_facts(1, "Grace", 5) == []
    for path in (f"{PAGE}/{number}", f"{PAGE}/{number}/delete"):
        gone = await http.get(path)
        assert (gone.status_code, "was deleted by operator" in gone.text, "<h1>" in gone.text) == (404, True, True)


async def test_one_that_is_worked_on_is_not_deleted(rows: JobRows, http: httpx.AsyncClient) -> None:
    number, job_id = talk(rows, "hello"), rows.add("more")
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, conversation_id=number)
    asked = (await http.get(f"{PAGE}/{number}/delete")).text
    assert (f'href="/queue/{job_id}"' in asked, "Delete permanently" in asked) == (True, False)
    refused = await http.post(f"{PAGE}/{number}/delete")
    assert (refused.status_code, "is still open" in refused.text) == (409, True)


async def test_an_idle_page_is_not_made_again(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "hello")
    for path in (PAGE, f"{PAGE}/{number}"):
        tag = (await http.get(path)).headers["ETag"]
        assert (await http.get(path, headers={"If-None-Match": tag})).status_code == 304
        rows.add("news")
        assert (await http.get(path, headers={"If-None-Match": tag})).status_code == 200


async def test_a_text_of_the_address_is_not_shown(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "hello")
    for path in (PAGE, f"{PAGE}/{number}"):
        assert "pay here" not in (await http.get(path, params={"done": "pay here"})).text
