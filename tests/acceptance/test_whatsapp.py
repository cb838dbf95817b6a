"""WhatsApp from end to end: a server that speaks the Graph API and posts as Meta does, a real Temporal server."""

import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.jobs.replay import ReplayMode
from tests.support.history import history_of
from tests.support.instance import Instance, Row, running_instance, until
from tests.support.whatsapp_server import (
    ACCESS_TOKEN,
    APP_SECRET,
    NUMBER_ID,
    SECOND_NUMBER_ID,
    TEMPLATE,
    VERIFY_TOKEN,
    Fault,
    WhatsAppServer,
    signature,
)
from tests.support.whatsapp_server.business import Json

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("whatsapp")]

PNG = b"\x89PNG\r\n\x1a\n and pixels"
OGG = b"OggS\x00\x02 OpusHead and sound"
CODE = "```python\n" + "".join(f"print({n:04} < 1)\n" for n in range(700)) + "```"
PEOPLE = [f"4915100{n:06d}" for n in range(60)]
"""Each of them is known, and each test talks to another one."""
STRANGER = "4917100000000"
HOLDING = "holding"
"""The account of the second number: what is in doubt is held there, and it has a template."""
DAY = 24 * 3600


class Town:
    """A WhatsApp with two numbers of ours, and what a test asks about it."""

    def __init__(self, whatsapp: WhatsAppServer) -> None:
        self.whatsapp = whatsapp
        self.maestro: Instance
        self._people = iter(PEOPLE)

    def person(self) -> str:
        """Return somebody to whom nothing was ever said."""
        return next(self._people)

    def url(self, account: str = "default") -> str:
        """Return where Meta posts."""
        return f"http://127.0.0.1:{self.maestro.loaded.settings.web.port}/platforms/whatsapp/{account}"

    async def job(self, said: str, status: str = "completed") -> Row:
        """Return the one job of a message once it has ended this way."""
        sql = "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND status = ?"
        [job] = await self.maestro.until(sql, said, status)
        return job

    async def ask(self, text: str, person: str, **fields: Any) -> str:
        """Let somebody say something, and return the text of the last answer."""
        await self.job(self.whatsapp.say(person, text, **fields))
        return self.whatsapp.texts(person)[-1]

    def deliveries(self, job: Row) -> list[Row]:
        """Return what a job had to send."""
        return self.maestro.query("SELECT * FROM deliveries WHERE job_id = ? ORDER BY id", job["id"])

    def old(self, person: str, text: str, seconds: int) -> Json:
        """Return a message that somebody wrote so long ago."""
        message = self.whatsapp.business.wrote(person, "text", {"body": text})
        self.whatsapp.business.open(person, seconds)
        return {**message, "timestamp": str(int(time.time()) - seconds)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    async with WhatsAppServer.running() as whatsapp:
        town = Town(whatsapp)
        options = {"baseUrl": whatsapp.base_url, "mediaHosts": ["127.0.0.1"], "pairSeconds": 0, "statusSeconds": 1.5}
        secrets = {"accessToken": ACCESS_TOKEN, "appSecret": APP_SECRET, "verifyToken": VERIFY_TOKEN}
        own = {"phoneNumberId": SECOND_NUMBER_ID, "onAmbiguous": "hold", "template": TEMPLATE}
        second = {"platform": "whatsapp", "account": HOLDING, "secrets": secrets, "options": {**options, **own}}
        first = {"enabled": True, "phoneNumberId": NUMBER_ID, "ackReaction": "👀", **secrets, **options}
        async with running_instance(
            tmp_path_factory.mktemp("whatsapp"),
            agents=[{"slug": "chief", "role": "conductor"}],
            owner={"ids": [f"whatsapp:{person}" for person in PEOPLE]},
            connectors={"whatsapp": first, "bots": [second]},
        ) as maestro:
            town.maestro = maestro
            for account in ("default", HOLDING):
                await maestro.until("SELECT * FROM connectors WHERE account = ? AND state = 'running'", account)
            whatsapp.postman.url = town.url()
            whatsapp.postman.urls[SECOND_NUMBER_ID] = town.url(HOLDING)
            yield town


@pytest.fixture(autouse=True)
def mended(town: Town) -> Iterator[None]:
    town.maestro.llm.reset()
    tells = town.whatsapp.tells
    yield
    town.whatsapp.tells = tells


async def test_a_message_is_answered_while_the_chat_shows_that_somebody_types(town: Town) -> None:
    ada = town.person()
    said = town.whatsapp.say(ada, "hello <you>")
    job = await town.job(said)
    [sent] = town.whatsapp.sent(ada)
    assert sent["text"] == {"body": "answer to: hello <you>", "preview_url": False}
    assert said in [one["message_id"] for one in town.whatsapp.business.read if one["typing_indicator"]]
    [row] = town.deliveries(job)
    assert (row["state"], row["platform_message_id"], row["key"]) == (
        "sent",
        sent["id"],
        sent["biz_opaque_callback_data"],
    )
    await town.maestro.until("SELECT 1 FROM deliveries WHERE id = ? AND standing = 'delivered'", row["id"])


async def test_a_message_is_acknowledged_by_a_reaction(town: Town) -> None:
    ada = town.person()
    said = town.whatsapp.say(ada, "hello")
    await town.job(said)
    reactions = [one["reaction"] for one in town.whatsapp.business.reactions if one["to"] == ada]
    assert reactions == [{"message_id": said, "emoji": "👀"}]


async def test_a_chat_is_one_conversation_with_the_conductor(town: Town) -> None:
    ada = town.person()
    await town.ask("my name is Ada", ada)
    job = await town.job(town.whatsapp.say(ada, "what is it"))
    [request] = town.maestro.llm.matching("what is it")
    assert "my name is Ada" in "".join(request.texts)
    [step] = town.maestro.query("SELECT result FROM job_steps WHERE job_id = ? AND step = 'route'", job["id"])
    assert '"chief"' in step["result"]


async def test_a_picture_reaches_the_model(town: Town) -> None:
    picture = town.whatsapp.file(PNG, "image/png")
    await town.job(town.whatsapp.show(town.person(), "image", picture, caption="look"))
    [request] = town.maestro.llm.matching("look")
    assert request.images == [PNG]
    assert town.whatsapp.downloads[-1] == (f"/files/{picture}", f"Bearer {ACCESS_TOKEN}")


async def test_a_voice_message_is_heard(town: Town) -> None:
    town.maestro.llm.script(wire="transcription", reply="what I said")
    voice = town.whatsapp.file(OGG, "audio/ogg; codecs=opus")
    await town.job(town.whatsapp.show(town.person(), "audio", voice, voice=True))
    assert "what I said" in town.maestro.llm.matching("what I said")[-1].last_user


async def test_a_long_answer_keeps_its_code_in_fences(town: Town) -> None:
    ada = town.person()
    town.maestro.llm.script(reply=f"Here:\n{CODE}\nDone.")
    await town.ask("code", ada)
    texts = town.whatsapp.texts(ada)
    assert len(texts) > 2
    assert all(len(text) <= 4096 and text.count("```") % 2 == 0 for text in texts)
    lines = [line for text in texts for line in text.splitlines()]
    assert [line for line in lines if line.startswith("print")] == [f"print({n:04} < 1)" for n in range(700)]


async def test_a_very_long_answer_goes_as_a_file(town: Town) -> None:
    ada, long = town.person(), "word " * 8000
    town.maestro.llm.script(reply=long)
    await town.ask("much", ada)
    beginning, whole = town.whatsapp.sent(ada)
    assert (beginning["type"], whole["document"]["filename"]) == ("text", "answer.md")
    assert town.whatsapp.business.files[whole["document"]["id"]].content.decode().split() == long.split()


async def test_what_is_posted_three_times_is_answered_once(town: Town) -> None:
    ada = town.person()
    message = town.whatsapp.business.wrote(ada, "text", {"body": "once"})
    for _ in range(3):
        await town.whatsapp.taken(town.whatsapp.postman.post([message]))
    assert await town.ask("afterwards", ada) == "answer to: afterwards"
    assert town.whatsapp.texts(ada) == ["answer to: once", "answer to: afterwards"]


async def test_a_whole_batch_is_answered_each_in_its_chat(town: Town) -> None:
    ada, bob = town.person(), town.person()
    wrote = town.whatsapp.business.wrote
    batch = [wrote(one, "text", {"body": said}) for one, said in ((ada, "one"), (bob, "two"), (ada, "three"))]
    town.whatsapp.postman.post(batch)
    for message in batch:
        await town.job(message["id"])
    assert town.whatsapp.texts(ada) == ["answer to: one", "answer to: three"]
    assert town.whatsapp.texts(bob) == ["answer to: two"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault.limited(1),
        Fault.refused(131056),
        Fault.broken(503),
        Fault.broken(503, stores=True),
        Fault.cut_before(),
        Fault.cut_after(),
    ],
    ids=["limited", "pair", "unavailable", "unavailable-after", "cut-before", "cut-after"],
)
async def test_an_answer_arrives_once_whatever_befalls_its_first_try(town: Town, fault: Fault) -> None:
    ada = town.person()
    town.whatsapp.fail("messages", fault)
    job = await town.job(town.whatsapp.say(ada, "please"))
    assert town.whatsapp.texts(ada) == ["answer to: please"]
    [row] = town.deliveries(job)
    [sent] = town.whatsapp.sent(ada)
    assert (row["state"], row["platform_message_id"]) == ("sent", sent["id"])


async def test_a_message_of_which_nobody_says_anything_is_sent_again_and_marked(town: Town) -> None:
    ada = town.person()
    town.whatsapp.tells = ()
    town.whatsapp.fail("messages", Fault.cut_after())
    job = await town.job(town.whatsapp.say(ada, "please"))
    assert town.whatsapp.texts(ada) == ["answer to: please"] * 2
    [row] = town.deliveries(job)
    assert (row["state"], row["repeats"]) == ("sent", 1)


async def test_where_doubt_is_held_nothing_is_sent_twice(town: Town) -> None:
    ada = town.person()
    town.whatsapp.tells = ()
    town.whatsapp.fail("messages", Fault.cut_after())
    job = await town.job(town.whatsapp.say(ada, "please", number=SECOND_NUMBER_ID))
    assert town.whatsapp.texts(ada) == ["answer to: please"]
    [row] = town.deliveries(job)
    assert (row["account"], row["state"], row["repeats"]) == (HOLDING, "unconfirmed", 0)


async def test_a_status_that_comes_before_our_receipt_is_one(town: Town) -> None:
    ada = town.person()
    town.whatsapp.may_answer.clear()
    town.whatsapp.fail("messages", Fault.late())
    said = town.whatsapp.say(ada, "please")
    [sent] = await town.whatsapp.posts(ada)
    key = sent["biz_opaque_callback_data"]
    sql = "SELECT * FROM deliveries WHERE key = ? AND standing = 'delivered'"
    [row] = await town.maestro.until(sql, key)
    assert (row["state"], row["platform_message_id"]) == ("sending", sent["id"])
    town.whatsapp.may_answer.set()
    [row] = town.deliveries(await town.job(said))
    assert (row["state"], row["standing"]) == ("sent", "delivered")
    assert town.whatsapp.texts(ada) == ["answer to: please"]


async def test_statuses_in_any_order_leave_the_furthest(town: Town) -> None:
    ada = town.person()
    town.whatsapp.tells = ()
    job = await town.job(town.whatsapp.say(ada, "please"))
    [sent] = town.whatsapp.sent(ada)
    await town.whatsapp.taken(town.whatsapp.report(sent, "read"), town.whatsapp.report(sent, "sent", "delivered"))
    assert town.deliveries(job)[0]["standing"] == "read"


async def test_an_answer_that_was_taken_and_never_brought_is_no_answer(town: Town) -> None:
    ada = town.person()
    town.whatsapp.tells = ()
    said = town.whatsapp.say(ada, "please")
    await town.job(said)
    [sent] = town.whatsapp.sent(ada)
    await town.whatsapp.taken(town.whatsapp.report(sent, "failed", code=131026))
    job = await town.job(said, "failed")
    [row] = town.deliveries(job)
    assert (row["state"], "not on WhatsApp" in row["error"], ada in row["error"]) == ("failed", True, False)


async def test_what_was_never_brought_is_sent_anew_and_its_old_status_fails_it_no_more(town: Town) -> None:
    ada = town.person()
    town.whatsapp.tells = ()
    said = town.whatsapp.say(ada, "please")
    await town.job(said)
    [sent] = town.whatsapp.sent(ada)
    await town.whatsapp.taken(town.whatsapp.report(sent, "failed", code=131026))
    job = await town.job(said, "failed")
    town.whatsapp.fail("messages", Fault.late())
    town.whatsapp.may_answer.clear()
    with town.maestro.operator() as operator:
        await operator.jobs.replay(job["id"], ReplayMode.RESUME, "ada")
    _, anew = await town.whatsapp.posts(ada, 2)
    await town.whatsapp.taken(town.whatsapp.report(sent, "sent", "failed", code=131026))
    town.whatsapp.may_answer.set()
    [row] = town.deliveries(await town.job(said))
    assert (row["state"], row["platform_message_id"], row["standing"]) == ("sent", anew["id"], "")
    assert len(town.maestro.llm.requests) == 1
    assert len(town.whatsapp.sent(ada)) == 2


async def test_what_was_in_doubt_and_failed_is_not_sent_again(town: Town) -> None:
    ada = town.person()
    town.whatsapp.tells = ()
    town.whatsapp.fail("messages", Fault.cut_after())
    said = town.whatsapp.say(ada, "please")
    [sent] = await town.whatsapp.posts(ada)
    town.whatsapp.report(sent, "failed", code=131026)
    [row] = town.deliveries(await town.job(said, "failed"))
    assert (row["state"], "not on WhatsApp" in row["error"]) == ("failed", True)
    assert len(town.whatsapp.sent(ada)) == 1


async def test_a_refusal_is_not_tried_again_and_closes_the_chat_until_somebody_writes_there(town: Town) -> None:
    ada = town.person()
    before = len(town.whatsapp.called("messages"))
    town.whatsapp.fail("messages", Fault.refused(131026))
    job = await town.job(town.whatsapp.say(ada, "please"), "failed")
    assert len(town.whatsapp.called("messages")) == before + 1
    assert job["error"]
    assert await town.ask("again", ada) == "answer to: again"


async def test_what_came_a_day_late_is_not_answered_in_words_of_our_own(town: Town) -> None:
    ada = town.person()
    before = len(town.whatsapp.called("messages"))
    said = town.whatsapp.tell(town.old(ada, "long ago", DAY + 60))
    await town.job(said, "failed")
    assert len(town.whatsapp.called("messages")) == before
    [row] = town.maestro.query("SELECT * FROM disabled_channels WHERE channel = ?", ada)
    assert "next message opens the chat" in row["reason"]
    assert await town.ask("now", ada) == "answer to: now"


async def test_what_came_a_day_late_is_answered_by_a_template(town: Town) -> None:
    ada = town.person()
    town.maestro.llm.script(reply="# News\n\n- one\n- two")
    await town.job(town.whatsapp.tell(town.old(ada, "long ago", DAY + 60), SECOND_NUMBER_ID))
    [sent] = town.whatsapp.sent(ada)
    assert (sent["type"], sent["template"]["name"]) == ("template", TEMPLATE)
    assert town.whatsapp.texts(ada) == ["*News* • one • two"]


async def test_only_what_meta_signed_is_taken(town: Town) -> None:
    message = town.whatsapp.business.wrote(town.person(), "text", {"body": "forged"})
    body = json.dumps(town.whatsapp.postman.payload([message], [], NUMBER_ID)).encode()
    send, url = town.whatsapp.postman.send, town.url()
    assert await send(body, url=url, signed=signature("another", body)) == 401
    assert await send(body, url=url, signed="") == 401
    assert await send(body + b" ", url=url, signed=signature(APP_SECRET, body)) == 401
    assert town.maestro.query("SELECT * FROM inbox WHERE message_id = ?", message["id"]) == []
    assert [await send(body, url=url) for _ in range(2)] == [200, 200]
    await town.job(message["id"])
    assert len(town.maestro.query("SELECT * FROM inbox WHERE message_id = ?", message["id"])) == 1


async def test_meta_is_told_that_the_address_is_ours(town: Town) -> None:
    asked = {"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "1158201444"}
    answer = await town.whatsapp.postman.http.get(town.url(), params=asked)
    assert (answer.status_code, answer.text) == (200, "1158201444")
    wrong = await town.whatsapp.postman.http.get(town.url(), params={**asked, "hub.verify_token": "another"})
    assert wrong.status_code == 403


async def test_what_is_for_another_number_is_not_taken(town: Town) -> None:
    ada = town.person()
    message = town.whatsapp.business.wrote(ada, "text", {"body": "for the other one"})
    body = json.dumps(town.whatsapp.postman.payload([message], [], SECOND_NUMBER_ID)).encode()
    assert await town.whatsapp.postman.send(body, url=town.url()) == 200
    assert town.maestro.query("SELECT * FROM inbox WHERE message_id = ?", message["id"]) == []


async def test_a_file_of_200_megabytes_is_not_fetched(town: Town) -> None:
    before = len(town.whatsapp.downloads)
    huge = town.whatsapp.file(PNG, "image/png", size=200 * 1024**2)
    await town.job(town.whatsapp.show(town.person(), "image", huge, caption="huge"))
    [request] = town.maestro.llm.matching("huge")
    assert (request.images, len(town.whatsapp.downloads)) == ([], before)


async def test_a_file_at_a_private_address_is_not_fetched(town: Town) -> None:
    inside = town.whatsapp.file(PNG, "image/png", url="https://10.0.0.1/inside.png")
    job = await town.job(town.whatsapp.show(town.person(), "image", inside, caption="private"))
    [row] = town.maestro.query("SELECT * FROM media WHERE inbox_id = ?", job["inbox_id"])
    assert (row["digest"], "not one of the hosts" in row["error"]) == ("", True)


async def test_a_file_that_is_another_one_is_not_shown_to_the_model(town: Town) -> None:
    wrong = town.whatsapp.file(PNG, "image/png", sha256="0" * 64)
    job = await town.job(town.whatsapp.show(town.person(), "image", wrong, caption="swapped"))
    [row] = town.maestro.query("SELECT * FROM media WHERE inbox_id = ?", job["inbox_id"])
    assert (row["digest"], "checksum" in row["error"]) == ("", True)
    [request] = town.maestro.llm.matching("swapped")
    assert request.images == []


async def test_a_stranger_with_a_picture_costs_nothing(town: Town) -> None:
    before = len(town.whatsapp.downloads), len(town.whatsapp.called("lookup"))
    picture = town.whatsapp.file(PNG, "image/png")
    await town.job(town.whatsapp.show(STRANGER, "image", picture, caption="let me in"), "dropped")
    await town.whatsapp.posts(STRANGER)
    [told] = town.whatsapp.texts(STRANGER)
    assert "Tell the operator this code" in told
    assert town.maestro.llm.requests == []
    assert (len(town.whatsapp.downloads), len(town.whatsapp.called("lookup"))) == before


async def test_a_stop_ends_an_answer(town: Town) -> None:
    ada = town.person()
    town.maestro.llm.script(match="slowly", delay=30.0)
    said = town.whatsapp.say(ada, "slowly")
    await town.maestro.asked("slowly")
    town.whatsapp.say(ada, "/stop")
    await town.job(said, "cancelled")
    await until(lambda: town.whatsapp.texts(ada)[-1:] == ["Stopped."])


@pytest.mark.parametrize("count", [2, 4], ids=["buttons", "list"])
async def test_a_press_answers_a_question(town: Town, count: int) -> None:
    ada, choices = town.person(), ["Red", "Dark blue", "Green", "None of them"][:count]
    question = {"question": "Which flag?", "choices": choices}
    town.maestro.llm.script(match="hoist a flag", calls=[("ask_question", question)], rounds=0)
    town.maestro.llm.script(match="hoist a flag", reply="It came to: {results}", rounds=1)
    said = town.whatsapp.say(ada, "hoist a flag")
    [asked] = await town.whatsapp.posts(ada)
    kind = asked["interactive"]["type"]
    pressed = town.whatsapp.press(ada, asked, 1)
    await town.job(said)
    assert (kind, town.whatsapp.texts(ada)[-1]) == ("button" if count == 2 else "list", "It came to: Dark blue")
    [row] = town.maestro.query("SELECT * FROM inbox WHERE message_id = ?", pressed)
    assert (row["content"].partition(" #")[0], row["reply_to"]) == ("Dark blue", asked["id"])


async def test_what_was_said_while_maestro_was_down_is_answered_once_and_in_order(town: Town) -> None:
    ada = town.person()
    await town.ask("before", ada)
    answered = town.whatsapp.postman.postings[-1]
    await town.maestro.stop()
    missed = []
    for n in itertools.count(0):
        missed.append(town.whatsapp.say(ada, f"missed {n}"))
        # Meta keeps what nobody takes and tries it again by itself, later and in no order.
        await until(lambda: bool(town.whatsapp.postman.postings[-1].answers))
        if n == 2:
            break
    await town.maestro.start()
    town.whatsapp.postman.again(answered)
    for message_id in missed:
        await town.job(message_id)
    await town.ask("after", ada)
    texts = town.whatsapp.texts(ada)
    assert (texts[0], texts[-1]) == ("answer to: before", "answer to: after")
    assert sorted(texts[1:-1]) == [f"answer to: missed {n}" for n in range(3)]


async def test_no_token_is_anywhere(town: Town) -> None:
    """Not in a row, a file of the data folder, or a workflow's history."""
    town.whatsapp.fail("messages", Fault.broken(stores=True))
    picture = town.whatsapp.file(PNG, "image/png")
    job = await town.job(town.whatsapp.show(town.person(), "image", picture, caption="please"))
    history = await history_of(town.maestro, job["id"])
    kept = files(town.maestro.data_dir)
    for token in (ACCESS_TOKEN, APP_SECRET, VERIFY_TOKEN):
        assert token.encode() not in history
        assert [path for path in kept if token.encode() in path.read_bytes()] == []


def files(folder: Path) -> list[Path]:
    """Return every file of a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]
