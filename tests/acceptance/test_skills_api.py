"""Skills on the REST API: what is shown, and how one is added, switched and removed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from maestro.operations.skills import SkillFolder, SkillLoader, SkillOperations
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.skill_texts import skill_text, write_skill

TEA = skill_text("tea", "tea", "pot", more="version: 1.2\nrequired_tools: [kettle]\n")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store."""
    rows = JobRows.at(tmp_path / "data")
    yield rows
    rows.store.close()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Name the operator's folder."""
    return tmp_path / "skills"


@pytest.fixture
def loader(rows: JobRows, own: Path) -> SkillLoader:
    """Return what a worker keeps the store in line with; it has looked once."""
    loader = SkillLoader(rows.store, SkillFolder(own), seconds=1)
    loader.load_changes()
    return loader


@pytest.fixture
async def http(rows: JobRows, own: Path, loader: SkillLoader) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    control = SkillOperations(rows.store, SkillFolder(own))
    async with client(app_of(rows, skills=control), auth=BASIC) as http:
        yield http


async def added(http: httpx.AsyncClient, text: str = TEA) -> dict[str, Any]:
    answer = await http.post("/api/skills", content=text, headers={"Content-Type": "text/markdown"})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def names(folder: Path) -> list[str] | None:
    """Return the files of a folder, None when there is none."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else None


async def slugs(http: httpx.AsyncClient) -> list[str]:
    return [item["slug"] for item in (await http.get("/api/skills")).json()["items"]]


def audited(rows: JobRows) -> list[tuple[str, str, str]]:
    with rows.store.view() as tx:
        return [
            (entry.actor, entry.action, entry.subject) for entry in reversed(tx.system.audit.list_latest_entries(20))
        ]


async def test_a_skill_is_added_to_the_folder_and_shown(http: httpx.AsyncClient, rows: JobRows, own: Path) -> None:
    shown = await added(http)
    moment = shown.pop("updatedAt")
    assert shown == {
        "slug": "tea",
        "name": "Tea",
        "description": "",
        "category": "",
        "version": "1.2",
        "author": "",
        "enabled": True,
        "shipped": False,
        "source": str(own / "tea.md"),
        "keywords": ["tea", "pot"],
        "patterns": [],
        "requiredTools": ["kettle"],
        "problems": [],
        "body": "Boil water first.",
    }
    assert (own / "tea.md").read_text() == TEA
    assert (await http.get("/api/skills/tea")).json() == {**shown, "updatedAt": moment}
    assert audited(rows) == [("operator", "skill.add", "tea")]


async def test_the_list_goes_page_by_page_and_shows_problems_of_every_file(
    http: httpx.AsyncClient, own: Path, loader: SkillLoader
) -> None:
    broken = write_skill(own, "broken.md", "no skill")
    odd = write_skill(own, "odd.md", skill_text("odd", "tea", more="colour: green\n"))
    loader.load_changes()
    whole = (await http.get("/api/skills")).json()
    assert [item["slug"] for item in whole["items"]] == sorted(item["slug"] for item in whole["items"])
    assert {item["slug"]: item["enabled"] for item in whole["items"]}["code-review"]
    assert "body" not in whole["items"][0]
    assert [found["source"] for found in whole["problems"]] == [str(broken), str(odd)]
    [mine] = [item for item in whole["items"] if item["slug"] == "odd"]
    assert mine["problems"] == [found["problem"] for found in whole["problems"] if found["source"] == str(odd)]
    paged, cursor = [], ""
    while cursor is not None:
        page = (await http.get("/api/skills", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        paged += page["items"]
        cursor = page["next"]
    assert paged == whole["items"]


async def test_a_skill_is_switched_and_stays_so_when_its_file_changes(
    http: httpx.AsyncClient, rows: JobRows, own: Path, loader: SkillLoader
) -> None:
    await added(http)
    assert (await http.patch("/api/skills/tea", json={"enabled": False})).json()["enabled"] is False
    assert (await http.patch("/api/skills/tea", json={"enabled": False})).status_code == 200
    assert (await http.patch("/api/skills/tea", json={})).json()["enabled"] is False
    (own / "tea.md").write_text(skill_text("tea", "tea", body="Warm the pot."))
    loader.load_changes()
    shown = (await http.get("/api/skills/tea")).json()
    assert (shown["enabled"], shown["body"]) == (False, "Warm the pot.")
    assert (await http.patch("/api/skills/tea", json={"enabled": True})).json()["enabled"] is True
    assert audited(rows)[1:] == [("operator", "skill.disable", "tea"), ("operator", "skill.enable", "tea")]


async def test_a_slug_that_is_taken_needs_a_word(http: httpx.AsyncClient, own: Path) -> None:
    await added(http)
    other = skill_text("tea", "tea", body="Warm the pot.")
    refused = await http.post("/api/skills", content=other)
    assert (refused.status_code, refused.json()["error"]) == (409, "Conflict")
    assert str(own / "tea.md") in refused.json()["message"]
    replaced = await http.post("/api/skills", content=other, params={"replace": "true"})
    assert (replaced.status_code, replaced.json()["body"]) == (201, "Warm the pot.")
    assert names(own) == ["tea.md"]
    write_skill(own, "coffee.md", "something else")
    refused = await http.post("/api/skills", content=skill_text("coffee", "tea"), params={"replace": "true"})
    assert (refused.status_code, (own / "coffee.md").read_text()) == (409, "something else")


async def test_an_own_skill_goes_with_its_file_and_a_shipped_one_comes_back(
    http: httpx.AsyncClient, rows: JobRows, own: Path, loader: SkillLoader
) -> None:
    await added(http)
    await added(http, skill_text("debugging", "tea", body="My way."))
    assert (await http.get("/api/skills/debugging")).json()["shipped"] is False
    assert (await http.delete("/api/skills/tea")).status_code == 204
    assert (await http.delete("/api/skills/debugging")).status_code == 204
    assert names(own) == []
    assert "tea" not in await slugs(http)
    back = (await http.get("/api/skills/debugging")).json()
    assert (back["shipped"], back["body"].startswith("# Finding")) == (True, True)
    before = await slugs(http)
    loader.load_changes()
    loader.load_changes()
    assert await slugs(http) == before
    assert audited(rows)[2:] == [("operator", "skill.remove", "tea"), ("operator", "skill.remove", "debugging")]


async def test_what_cannot_be_done_is_one_clear_sentence(http: httpx.AsyncClient, own: Path) -> None:
    async def refusal(*request: Any, **options: Any) -> tuple[int, str, str]:
        answer = await http.request(*request, **options)
        return answer.status_code, answer.json()["error"], answer.json()["message"]

    status, error, message = await refusal("POST", "/api/skills", content="no skill")
    assert (status, error) == (400, "InvalidSkill")
    assert "no front matter" in message
    assert (await refusal("POST", "/api/skills", content=b"\xff"))[:2] == (400, "InvalidSkill")
    assert (await refusal("POST", "/api/skills", content=b"x" * 300_000))[:2] == (400, "InvalidSkill")
    assert (await refusal("GET", "/api/skills/nobody"))[:2] == (404, "NotFound")
    assert (await refusal("PATCH", "/api/skills/nobody", json={"enabled": True}))[:2] == (404, "NotFound")
    assert (await refusal("PATCH", "/api/skills/editing", json={"name": "x"}))[:2] == (400, "InvalidRequest")
    assert (await refusal("DELETE", "/api/skills/nobody"))[:2] == (404, "NotFound")
    status, error, message = await refusal("DELETE", "/api/skills/editing")
    assert (status, error) == (409, "Conflict")
    assert "disable it instead" in message
    assert names(own) is None


async def test_a_folder_that_takes_nothing_changes_nothing(http: httpx.AsyncClient, own: Path) -> None:
    write_skill(own.parent, own.name, "a file where the folder should be")
    answer = await http.post("/api/skills", content=TEA)
    assert (answer.status_code, answer.json()["error"]) == (400, "ConfigurationError")
    assert "skills.folder" in answer.json()["message"]
    assert "tea" not in await slugs(http)


async def test_a_stranger_sees_and_changes_nothing(rows: JobRows) -> None:
    async with client(app_of(rows)) as stranger:
        for method in ("GET", "POST"):
            assert (await stranger.request(method, "/api/skills")).status_code == 401
        for method in ("GET", "PATCH", "DELETE"):
            assert (await stranger.request(method, "/api/skills/editing")).status_code == 401
