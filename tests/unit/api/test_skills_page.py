"""The pages of skills: listed, tried, added, changed, switched and removed, with plain forms."""

import html
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from maestro.bootstrap.tools import tool_names
from maestro.operations.skills import SkillFolder, SkillLoader, SkillOperations
from maestro.settings import Settings
from maestro.settings.live import LiveSettings
from tests.support.api_client import BASIC, VIEWER, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent
from tests.support.skill_texts import skill_text, write_skill

PAGE = "/skills"
XSS = "<img src=x onerror=alert(1)>"
TEA = skill_text("tea", "tea", "pot", body=f"Boil {XSS} first.", more=f"description: About {XSS}\n")
LINE = re.compile(r'id="skill-([a-z0-9-]+)"')


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store."""
    rows = JobRows.at(tmp_path / "data")
    yield rows
    rows.store.close()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Name the operator's folder, with one skill and one broken file in it."""
    folder = tmp_path / "skills"
    write_skill(folder, "tea.md", TEA)
    write_skill(folder, "broken.md", "no front matter")
    return folder


@pytest.fixture
async def http(rows: JobRows, own: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    SkillLoader(rows.store, SkillFolder(own), seconds=1).load_changes()
    tools = tool_names(LiveSettings.from_fixed(Settings()))
    control = SkillOperations(rows.store, SkillFolder(own), tools)
    async with client(app_of(rows, skills=control), auth=BASIC) as http:
        yield http


async def listed(http: httpx.AsyncClient, **query: str) -> list[str]:
    return LINE.findall((await http.get(PAGE, params=query)).text)


async def done(http: httpx.AsyncClient, path: str, leads_to: str, **data: str) -> str:
    """Send a form that is obeyed, and return the page it leads to."""
    led = await http.post(f"{PAGE}{path}", data=data)
    assert (led.status_code, led.headers.get("Location")) == (303, f"{PAGE}{leads_to}"), led.text
    return html.unescape((await http.get(led.headers["Location"])).text)


async def test_the_list_says_what_brings_each_in_and_what_is_to_mend(http: httpx.AsyncClient) -> None:
    page = (await http.get(PAGE)).text
    assert "tea, pot" in page
    assert "broken.md</code>: " in page
    assert "<img" not in page
    assert "tea" in await listed(http, source="own")
    assert "tea" not in await listed(http, source="shipped")
    assert await listed(http, q="POT") == ["tea"]
    assert await listed(http, state="disabled") == []
    assert "No skill fits." in (await http.get(PAGE, params={"q": "nothing of the kind"})).text


async def test_one_is_read_with_what_it_tells_the_model(http: httpx.AsyncClient, own: Path) -> None:
    page = (await http.get(f"{PAGE}/tea")).text
    assert ("<img" not in page, "Boil &lt;img src=x" in page) == (True, True)
    assert "slug: tea" in page, "the file stands in the form, with its front matter"
    answer = await http.get("/api/skills/tea/text")
    assert (answer.text, answer.headers["Content-Type"].split(";")[0]) == (TEA, "text/markdown")
    gone = await http.get(f"{PAGE}/nothing")
    assert (gone.status_code, "<h1>This cannot be shown</h1>" in gone.text) == (404, True)
    (own / "tea.md").unlink()
    unread = await http.get(f"{PAGE}/tea")
    assert (unread.status_code, "cannot be read here" in unread.text, "<textarea" in unread.text) == (200, True, False)
    assert (await http.get("/api/skills/tea/text")).status_code == 409


async def test_a_message_is_tried(rows: JobRows, http: httpx.AsyncClient) -> None:
    page = (await http.post(f"{PAGE}/try", data={"message": f"a pot of tea {XSS}"})).text
    assert "<img" not in page
    (row,) = re.findall(r'<tr><th scope="row"><a href="/skills/tea">.*?</tr>', page, re.DOTALL)
    assert (">yes<" in row, "tea, pot" in row, ">2<" in row) == (True, True, True)
    assert "triggers no skill" in (await http.post(f"{PAGE}/try", data={"message": "xyzzy"})).text
    wrong = await http.post(f"{PAGE}/try", data={"message": "tea", "agent": "nobody"})
    assert (wrong.status_code, "there is no agent" in wrong.text) == (404, True)
    assert (await http.post(f"{PAGE}/try", data={"message": ""})).status_code == 400


async def test_a_trial_knows_the_tools_of_an_agent(rows: JobRows, http: httpx.AsyncClient) -> None:
    add_agent(rows, "bob")
    for slug, tool in (("one", "get_time"), ("two", "kettle"), ("three", "chat_post")):
        await done(http, "", f"/{slug}?done=added", text=skill_text(slug, "xyzzy", more=f"required_tools: [{tool}]\n"))
    answer = await http.post("/api/skills/try", json={"message": "xyzzy", "agent": "bob"})
    found = {one["slug"]: (one["chosen"], one["reason"]) for one in answer.json()["items"]}
    assert found == {"one": (True, ""), "three": (True, ""), "two": (False, "the agent does not have kettle")}
    assert (await http.post("/api/skills/try", json={"message": "xyzzy", "agent": "nobody"})).status_code == 404


async def test_a_skill_is_added_and_changed(http: httpx.AsyncClient, own: Path) -> None:
    assert "triggers:" in (await http.get(f"{PAGE}/new")).text
    text = skill_text("coffee", "coffee").replace("\n", "\r\n")
    page = await done(http, "", "/coffee?done=added", text=text)
    assert "is used from the next message on" in page
    assert (own / "coffee.md").read_bytes() == skill_text("coffee", "coffee").encode()
    taken = await http.post(PAGE, data={"text": text})
    assert (taken.status_code, "you have a skill" in taken.text, "slug: coffee" in taken.text) == (409, True, True)
    await done(http, "/coffee", "/coffee?done=added", text=skill_text("coffee", "espresso"))
    assert "espresso" in (own / "coffee.md").read_text()
    wrong = await http.post(f"{PAGE}/coffee", data={"text": "no front matter <b>"})
    assert (wrong.status_code, "no front matter &lt;b&gt;" in wrong.text) == (400, True)
    assert (await http.post(PAGE, data={"text": ""})).status_code == 400


async def test_a_shipped_one_is_replaced_and_comes_back(http: httpx.AsyncClient, own: Path) -> None:
    slug = (await listed(http, source="shipped"))[0]
    page = (await http.get(f"{PAGE}/{slug}")).text
    assert ("Write your own in its place" in page, "Delete the file" in page) == (True, False)
    kept = await http.post(f"{PAGE}/{slug}/remove")
    assert (kept.status_code, "comes with Maestro; disable it instead" in html.unescape(kept.text)) == (409, True)
    await done(http, f"/{slug}", f"/{slug}?done=added", text=skill_text(slug, "mine"))
    assert slug in await listed(http, source="own")
    await done(http, f"/{slug}/remove", "?done=removed")
    assert slug in await listed(http, source="shipped")
    assert not (own / f"{slug}.md").exists()


async def test_a_skill_is_switched(rows: JobRows, http: httpx.AsyncClient) -> None:
    assert "no message triggers it" in await done(http, "/tea/disable", "/tea?done=disabled")
    assert await listed(http, state="disabled") == ["tea"]
    assert "messages can trigger it again" in await done(http, "/tea/enable", "/tea?done=enabled")
    with rows.store.view() as tx:
        assert [one.action for one in tx.system.audit.list_latest_entries(2)] == ["skill.enable", "skill.disable"]
    assert (await http.post(f"{PAGE}/nothing/enable")).status_code == 404


async def test_a_viewer_tries_and_changes_nothing(rows: JobRows, own: Path) -> None:
    SkillLoader(rows.store, SkillFolder(own), seconds=1).load_changes()
    control = SkillOperations(rows.store, SkillFolder(own))
    async with client(app_of(rows, skills=control), auth=VIEWER) as viewer:
        assert ">yes<" in (await viewer.post(f"{PAGE}/try", data={"message": "tea"})).text
        page = (await viewer.get(f"{PAGE}/tea")).text
        assert ("Disable" in page, "<textarea" in page) == (False, False)
        assert (await viewer.post(f"{PAGE}/tea/disable")).status_code == 403
