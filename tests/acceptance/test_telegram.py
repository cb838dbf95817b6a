"""Telegram from end to end: the real library, a server that speaks Telegram's protocol, a real Temporal server."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from connectors.telegram.send import WORD_JOINER
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.schedule import Cron
from tests.support.history import history_of
from tests.support.instance import Instance, Row, running_instance, until
from tests.support.ports import free_port
from tests.support.telegram_server import (
    ADA,
    GROWING_TOKEN,
    HOLDING_TOKEN,
    OTHER_TOKEN,
    SECRET,
    TOKEN,
    ZOE,
    Fault,
    TelegramServer,
)
from tests.support.telegram_server.chats import utf16

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("telegram")]

PNG = b"\x89PNG\r\n\x1a\n and pixels"
OGG = b"OggS\x00\x02 OpusHead and sound"
CODE = "```python\n" + "".join(f"print({n:04} < 1)\n" for n in range(500)) + "```"
SQUARE, FORUM, SMALL, LARGE = -100100, -100101, -102, -100102
"""Groups that are the helper's; the small one becomes the large one. In others it is spoken to by name."""
HOOKED, HOLDING, GROWING = "hooked", "holding", "growing"
"""A bot to which Telegram posts, one whose messages in doubt are held, and one whose answers grow."""
BOTS = {HOOKED: OTHER_TOKEN, HOLDING: HOLDING_TOKEN, GROWING: GROWING_TOKEN, "default": TOKEN}
WORDS = "one **two** three four five six seven eight nine ten"


class Town:
    """A Telegram with bots of ours, and what a test asks about it."""

    def __init__(self, telegram: TelegramServer) -> None:
        self.telegram = telegram
        telegram.chats.forums.add(FORUM)
        self.maestro: Instance

    async def say(self, text: str, chat: int, **fields: Any) -> int:
        """Let Ada say something to the helper; returns the message's number."""
        return await self.telegram.say(chat, ADA, f"@helper {text}", **fields)

    async def job(self, chat: int, number: int | str, status: str = "completed", account: str = "default") -> Row:
        """Return the one job of a message once it has ended this way."""
        sql = (
            "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id "
            "WHERE inbox.account = ? AND inbox.channel = ? AND message_id = ? AND status = ?"
        )
        [job] = await self.maestro.until(sql, account, str(chat), str(number), status)
        return job

    async def ask(self, text: str, chat: int, **fields: Any) -> str:
        """Say something to the helper and return the text of the last post."""
        await self.job(chat, await self.say(text, chat, **fields))
        return self.texts(chat)[-1]

    def texts(self, chat: int) -> list[str]:
        """Return the words that were sent to a chat, as they read: a character nobody sees parts names from their @."""
        return [text.replace(WORD_JOINER, "") for text in self.telegram.texts(chat)]

    def deliveries(self, job: Row) -> list[Row]:
        """Return what a job had to send."""
        return self.maestro.query("SELECT * FROM deliveries WHERE job_id = ? ORDER BY id", job["id"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    async with TelegramServer.running() as telegram:
        town, port = Town(telegram), free_port()
        local = {"baseUrl": telegram.root, "mediaHosts": ["127.0.0.1"], "paceSeconds": 0, "groupPaceSeconds": 0}
        posted = {"mode": "webhook", "webhookUrl": f"http://127.0.0.1:{port}/platforms/telegram/{HOOKED}"}
        bots = [
            bot(HOOKED, {**local, **posted}, webhookSecret=SECRET),
            bot(HOLDING, {**local, "onAmbiguous": "hold"}),
            bot(GROWING, {**local, "streaming": True, "streamingSeconds": 0.2}),
        ]
        async with running_instance(
            tmp_path_factory.mktemp("telegram"),
            agents=[{"slug": "chief", "role": "conductor"}, {"slug": "helper", "tools": ["send_file", "ask_question"]}],
            channels=[
                {"platform": "telegram", "channel": str(one), "agent": "helper"} for one in (SQUARE, FORUM, SMALL)
            ],
            owner={"ids": [f"telegram:{ADA}"]},
            web={"port": port},
            tools={"files": True},
            connectors={"telegram": {"enabled": True, "token": TOKEN, "ackReaction": "👀", **local}, "bots": bots},
        ) as maestro:
            town.maestro = maestro
            for account in BOTS:
                await maestro.until("SELECT * FROM connectors WHERE account = ? AND state = 'running'", account)
            yield town


def bot(account: str, options: dict[str, Any], **secrets: str) -> dict[str, Any]:
    """Return the entry of one more bot."""
    shown = {"token": BOTS[account], **secrets}
    return {"platform": "telegram", "account": account, "secrets": shown, "options": options}


@pytest.fixture(autouse=True)
def mended(town: Town) -> None:
    town.maestro.llm.reset()


async def test_a_message_in_a_group_is_answered_as_a_reply_while_somebody_types(town: Town) -> None:
    said = await town.telegram.say(SQUARE, ADA, "hello <you>")
    job = await town.job(SQUARE, said)
    [post] = town.telegram.posted(SQUARE)
    assert (post["text"], post["replied"], post["previews"]) == ("answer to: hello <you>", said, False)
    assert str(SQUARE) in [one["chat_id"] for one in town.telegram.api.actions]
    [row] = town.deliveries(job)
    assert (row["state"], row["platform_message_id"]) == ("sent", str(post["message_id"]))


async def test_a_direct_message_is_the_conductors_and_quotes_nothing(town: Town) -> None:
    job = await town.job(ADA, await town.telegram.say(ADA, ADA, "in private"))
    [post] = town.telegram.posted(ADA)
    assert (post["text"], "replied" in post) == ("answer to: in private", False)
    [step] = town.maestro.query("SELECT result FROM job_steps WHERE job_id = ? AND step = 'route'", job["id"])
    assert '"chief"' in step["result"]


async def test_who_mentions_the_bot_where_nobody_is_at_home_is_answered_by_the_conductor(town: Town) -> None:
    await town.telegram.say(-200, ADA, "to each other")
    said = await town.telegram.say(-200, ADA, "@maestro_bot who are you?")
    job = await town.job(-200, said)
    [step] = town.maestro.query("SELECT result FROM job_steps WHERE job_id = ? AND step = 'route'", job["id"])
    assert '"chief"' in step["result"]
    assert len(town.telegram.posted(-200)) == 1


async def test_a_topic_is_a_conversation_of_its_own(town: Town) -> None:
    for topic, text in ((4, "my name is Ada"), (4, "what is it"), (5, "who am I")):
        extra: dict[str, Any] = {"message_thread_id": topic, "is_topic_message": True}
        await town.job(FORUM, await town.telegram.say(FORUM, ADA, text, **extra))
    [request] = town.maestro.llm.matching("what is it")
    assert "my name is Ada" in "".join(request.texts)
    [request] = town.maestro.llm.matching("who am I")
    assert "my name is Ada" not in "".join(request.texts)
    assert [post["message_thread_id"] for post in town.telegram.posted(FORUM)] == [4, 4, 5]


async def test_a_message_that_will_be_answered_gets_a_reaction(town: Town) -> None:
    said = await town.say("seen", -203)
    await town.job(-203, said)
    await until(
        lambda: (str(-203), str(said)) in [(r["chat_id"], r["message_id"]) for r in town.telegram.api.reactions]
    )


async def test_a_picture_reaches_the_model(town: Town) -> None:
    picture = town.telegram.chats.keep("cat.png", PNG)
    said = await town.telegram.send_file(-204, ADA, "photo", picture, caption="@helper look")
    await town.job(-204, said)
    [request] = town.maestro.llm.matching("look")
    assert request.images == [PNG]
    assert town.telegram.downloads[-1] == picture.path


async def test_an_album_is_one_message_with_all_its_pictures(town: Town) -> None:
    pictures = [town.telegram.chats.keep(f"{n}.png", PNG + bytes([n])) for n in range(3)]
    first, *_ = [
        await town.telegram.send_file(
            -205, ADA, "photo", one, media_group_id="77", **({} if n else {"caption": "@helper album"})
        )
        for n, one in enumerate(pictures)
    ]
    await town.job(-205, first)
    [request] = town.maestro.llm.matching("album")
    assert request.images == [one.content for one in pictures]
    assert len(town.maestro.query("SELECT * FROM inbox WHERE channel = '-205'")) == 1


async def test_a_voice_message_is_heard(town: Town) -> None:
    town.maestro.llm.script(wire="transcription", reply="what I said")
    voice = town.telegram.chats.keep("voice.oga", OGG)
    said = await town.telegram.send_file(SQUARE, ADA, "voice", voice, shown={"mime_type": "audio/ogg"})
    await town.job(SQUARE, said)
    assert "what I said" in town.maestro.llm.requests[-1].last_user


async def test_a_long_answer_keeps_its_code_in_one_piece_each(town: Town) -> None:
    town.maestro.llm.script(reply=f"Here:\n{CODE}\nDone.")
    said = await town.say("code", -206)
    job = await town.job(-206, said)
    posts = town.telegram.posted(-206)
    assert len(posts) > 2
    assert all(utf16(post["text"]) <= 4096 and "```" not in post["text"] for post in posts)
    lines = [line for post in posts for line in post["text"].splitlines()]
    assert [line for line in lines if line.startswith("print")] == [f"print({n:04} < 1)" for n in range(500)]
    assert [post.get("replied") for post in posts] == [said] + [None] * (len(posts) - 1)
    sent = [call.arguments["text"] for call in town.telegram.called("sendMessage")][-len(posts) :]
    assert all('<pre><code class="language-python">' in text for text in sent[:-1])
    assert {row["state"] for row in town.deliveries(job)} == {"sent"}


async def test_a_very_long_answer_goes_as_a_file(town: Town) -> None:
    long = "word " * 8000
    town.maestro.llm.script(reply=long)
    await town.ask("much", -207)
    [file] = [post["document"] for post in town.telegram.posted(-207) if "document" in post]
    assert town.telegram.chats.files[file["file_id"]].content.decode().split() == long.split()


async def test_files_of_an_agent_come_after_its_answer(town: Town) -> None:
    await town.ask("begin", -236)
    [row] = town.maestro.query("SELECT id FROM conversations WHERE channel = '-236'")
    folder = town.maestro.data_dir / "workspaces" / str(row["id"])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("cat.png", PNG), ("costs.csv", b"a,b\n1,2\n")):
        (folder / name).write_bytes(content)
    calls = [("send_file", {"path": "cat.png", "caption": "**A** cat"}), ("send_file", {"path": "costs.csv"})]
    town.maestro.llm.script(match="send me both", calls=calls, rounds=0)
    town.maestro.llm.script(match="send me both", reply="Here they are", rounds=1)
    job = await town.job(-236, await town.say("send me both", -236))
    _, words, picture, table = town.telegram.posted(-236)
    kept = town.telegram.chats.files
    assert (words["text"], picture["caption"]) == ("Here they are", "A cat")
    assert kept[picture["photo"][0]["file_id"]].content == PNG
    assert (table["document"]["file_name"], kept[table["document"]["file_id"]].content) == ("costs.csv", b"a,b\n1,2\n")
    assert [one["state"] for one in town.deliveries(job)] == ["sent"] * 3


async def test_what_is_told_three_times_is_answered_once(town: Town) -> None:
    message = town.telegram.chats.write(-208, ADA, "@helper once")
    for _ in range(3):
        await town.telegram.tell("message", message)
    assert await town.ask("afterwards", -208) == "answer to: @helper afterwards"
    assert town.texts(-208) == ["answer to: @helper once", "answer to: @helper afterwards"]


async def test_an_edit_of_what_waits_changes_what_is_asked(town: Town) -> None:
    town.maestro.llm.script(match="first", delay=1.0)
    await town.say("first", -209)
    await town.maestro.asked("first")
    waiting = await town.say("secnod", -209)
    await town.telegram.edit(-209, waiting, "@helper second")
    await town.job(-209, waiting)
    assert town.texts(-209) == ["answer to: @helper first", "answer to: @helper second"]


@pytest.mark.parametrize(
    ("chat", "fault", "now"),
    [
        (-210, Fault.limited(1), -210),
        (-211, Fault.refused("Bad Request: can't parse entities: Unsupported start tag"), -211),
        (-212, Fault.migrated(-1212), -1212),
    ],
)
async def test_an_answer_that_telegram_surely_did_not_take_arrives_once(
    town: Town, chat: int, fault: Fault, now: int
) -> None:
    town.telegram.fail("sendMessage", fault)
    said = await town.say("please", chat)
    await town.telegram.posts(now)
    assert town.texts(now) == ["answer to: @helper please"]
    [row] = await town.maestro.until(
        "SELECT deliveries.* FROM inbox JOIN deliveries ON deliveries.job_id = inbox.job_id "
        "WHERE inbox.channel IN (?, ?) AND inbox.message_id = ? AND deliveries.state = 'sent'",
        *(str(chat), str(now), str(said)),
    )
    assert row["repeats"] == 0


@pytest.mark.parametrize(
    ("chat", "fault", "copies"),
    [
        (-220, Fault.broken(502), 1),
        (-221, Fault.broken(500, stores=True), 2),
        (-222, Fault.cut_before(), 1),
        (-223, Fault.cut_after(), 2),
    ],
)
async def test_an_answer_in_doubt_is_sent_again_and_marked(town: Town, chat: int, fault: Fault, copies: int) -> None:
    """Nobody can say whether Telegram has it: at most one is too many, and the row says that it may be."""
    town.telegram.fail("sendMessage", fault)
    job = await town.job(chat, await town.say("please", chat))
    assert town.texts(chat) == ["answer to: @helper please"] * copies
    assert [(row["state"], row["repeats"]) for row in town.deliveries(job)] == [("sent", 1)]


async def test_an_answer_in_doubt_is_held_where_that_is_the_rule(town: Town) -> None:
    town.telegram.fail("sendMessage", Fault.cut_after())
    said = await town.say("please", -224, token=HOLDING_TOKEN)
    job = await town.job(-224, said, account=HOLDING)
    assert town.texts(-224) == ["answer to: @helper please"]
    assert [(row["state"], row["repeats"]) for row in town.deliveries(job)] == [("unconfirmed", 0)]


async def test_a_scheduled_post_in_doubt_is_held(town: Town) -> None:
    """Nobody waits for it, so that it is there once at most; an operator sees what became of it."""
    town.maestro.llm.script("Look at the harbour.", reply="A ship came in")
    town.telegram.fail("sendMessage", Fault.cut_after())
    place = {"platform": "telegram", "channel": "-240"}
    yearly = NewSchedule(agent="helper", schedule="0 9 1 1 *", prompt="Look at the harbour.", **place)
    with town.maestro.operator() as operator, operator.store.begin() as tx:
        job_id = tx.background.runs.run_now(
            tx.background.schedules.add_schedule(Cron, yearly, "test", timedelta(minutes=1)), "test"
        )
    [job] = await town.maestro.until("SELECT * FROM queue WHERE id = ? AND status = 'completed'", job_id)
    assert town.texts(-240) == ["A ship came in"]
    assert [(row["state"], row["repeats"]) for row in town.deliveries(job)] == [("unconfirmed", 0)]


async def test_an_answer_grows_in_one_message(town: Town) -> None:
    town.maestro.llm.script(reply=WORDS, pause=6)
    said = await town.say("count", -234, token=GROWING_TOKEN)
    await until(lambda: any("two" in text for text in town.texts(-234)))
    assert "ten" not in town.texts(-234)[0]
    town.maestro.llm.go_on()
    job = await town.job(-234, said, account=GROWING)
    [post] = town.telegram.posted(-234)
    assert (post["text"], post["replied"]) == (WORDS.replace("*", ""), said)
    [row] = town.deliveries(job)
    assert (row["state"], row["platform_message_id"], row["repeats"]) == ("sent", str(post["message_id"]), 0)


async def test_a_cut_in_a_message_that_grows_leaves_one(town: Town) -> None:
    """To write a message anew twice is to write it once."""
    town.maestro.llm.script(reply=WORDS)
    town.telegram.fail("editMessageText", Fault.cut_after(), Fault.limited(1), Fault.broken())
    job = await town.job(-235, await town.say("count", -235, token=GROWING_TOKEN), account=GROWING)
    assert town.texts(-235) == [WORDS.replace("*", "")]
    assert [(row["state"], row["repeats"]) for row in town.deliveries(job)] == [("sent", 0)]


async def test_a_refusal_is_not_tried_again_and_closes_the_channel_until_somebody_writes_there(town: Town) -> None:
    before = len(town.telegram.called("sendMessage"))
    town.telegram.fail("sendMessage", Fault.refused("Forbidden: bot was kicked from the group chat", 403))
    job = await town.job(-225, await town.say("please", -225), "failed")
    assert len(town.telegram.called("sendMessage")) == before + 1
    assert job["error"]
    assert await town.ask("again", -225) == "answer to: @helper again"


async def test_a_webhook_takes_each_message_once_and_from_telegram_alone(town: Town) -> None:
    said = await town.say("posted", -226, token=OTHER_TOKEN)
    job = await town.job(-226, said, account=HOOKED)
    assert job["account"] == HOOKED
    again = {"update_id": 1, "message": town.telegram.chats.find(-226, said)}
    url = town.telegram.bots[OTHER_TOKEN].url
    assert await town.telegram.post(url, again, SECRET) == 200
    forged = {"update_id": 2, "message": town.telegram.chats.write(-227, ADA, "@helper forged")}
    assert [await town.telegram.post(url, forged, secret) for secret in ("another", "")] == [401, 401]
    assert town.maestro.query("SELECT * FROM inbox WHERE channel = '-227'") == []
    assert town.texts(-226) == ["answer to: @helper posted"]


async def test_a_file_of_200_megabytes_is_not_fetched(town: Town) -> None:
    before = len(town.telegram.called("getFile"))
    huge = town.telegram.chats.keep("huge.png", PNG, size=200 * 1024**2)
    await town.job(-228, await town.telegram.send_file(-228, ADA, "document", huge, caption="@helper huge"))
    [request] = town.maestro.llm.matching("huge")
    assert (request.images, len(town.telegram.called("getFile"))) == ([], before)


async def test_a_file_at_a_private_address_is_not_fetched(town: Town) -> None:
    inside = town.telegram.chats.keep("inside.png", PNG, redirect="https://10.0.0.1/inside.png")
    job = await town.job(-229, await town.telegram.send_file(-229, ADA, "photo", inside, caption="@helper private"))
    [row] = town.maestro.query("SELECT * FROM media WHERE inbox_id = ?", job["inbox_id"])
    assert (row["digest"], "not one of the hosts" in row["error"]) == ("", True)


async def test_a_stranger_with_a_picture_costs_nothing(town: Town) -> None:
    before = len(town.telegram.downloads), len(town.telegram.called("getFile"))
    picture = town.telegram.chats.keep("cat.png", PNG)
    await town.job(ZOE, await town.telegram.send_file(ZOE, ZOE, "photo", picture, caption="let me in"), "dropped")
    [post] = await town.telegram.posts(ZOE)
    assert "Tell the operator this code" in post["text"]
    assert town.maestro.llm.requests == []
    assert (len(town.telegram.downloads), len(town.telegram.called("getFile"))) == before


async def test_the_command_stop_ends_an_answer(town: Town) -> None:
    town.maestro.llm.script(match="slowly", delay=30.0)
    said = await town.telegram.say(SQUARE, ADA, "slowly")
    await town.maestro.asked("slowly")
    await town.telegram.say(SQUARE, ADA, "/stop@other_bot")
    await town.telegram.say(SQUARE, ADA, "/stop@maestro_bot")
    await town.job(SQUARE, said, "cancelled")
    await until(lambda: town.texts(SQUARE)[-1:] == ["Stopped."])
    assert [row["control"] for row in town.maestro.query("SELECT * FROM inbox WHERE content LIKE '/stop%'")] == [
        "/stop"
    ]


async def test_who_presses_a_button_answers_the_question(town: Town) -> None:
    choices = {"question": "Which flag?", "choices": ["Red", "Dark blue"]}
    town.maestro.llm.script(match="hoist a flag", calls=[("ask_question", choices)], rounds=0)
    town.maestro.llm.script(match="hoist a flag", reply="It came to: {results}", rounds=1)
    await town.say("hoist a flag", -230)
    [question] = await town.telegram.posts(-230)
    labels = [row[0]["text"] for row in question["reply_markup"]["inline_keyboard"]]
    assert labels == ["Red", "Dark blue"]
    press = await town.telegram.press(-230, ADA, question["message_id"], 1)
    await until(lambda: any("It came to: Dark blue" in text for text in town.texts(-230)))
    await until(lambda: press in [one["callback_query_id"] for one in town.telegram.api.answered])
    [row] = town.maestro.query("SELECT * FROM inbox WHERE message_id = ?", f"press:{press}")
    assert (row["content"].partition(" #")[0], row["reply_to"]) == ("Dark blue", str(question["message_id"]))


async def test_a_group_that_moves_keeps_its_agent_and_its_conversation(town: Town) -> None:
    await town.job(SMALL, await town.telegram.say(SMALL, ADA, "my name is Ada"))
    await town.telegram.say(SMALL, ADA, "", migrate_to_chat_id=LARGE)
    await town.telegram.say(LARGE, ADA, "", migrate_from_chat_id=SMALL)
    await town.job(LARGE, await town.telegram.say(LARGE, ADA, "what is my name"))
    [request] = town.maestro.llm.matching("what is my name")
    assert "my name is Ada" in "".join(request.texts)
    assert town.texts(LARGE) == ["answer to: what is my name"]


async def test_what_telegram_kept_while_maestro_was_down_is_answered_once_and_in_order(town: Town) -> None:
    first = await town.say("before", -231)
    await town.job(-231, first)
    await town.maestro.stop()
    old = {"update_id": town.telegram.bots[TOKEN].told, "message": town.telegram.chats.find(-231, first)}
    await town.telegram.bots[TOKEN].repeat(old)
    missed = [await town.say(f"missed {n}", -231) for n in range(3)]
    await town.maestro.start()
    for number in missed:
        await town.job(-231, number)
    await town.ask("after", -231)
    said = ["before", "missed 0", "missed 1", "missed 2", "after"]
    assert town.texts(-231) == [f"answer to: @helper {one}" for one in said]


async def test_a_poll_that_breaks_costs_nothing(town: Town) -> None:
    town.telegram.fail("getUpdates", Fault.cut_before(), Fault.broken())
    assert await town.ask("while you were away", -232) == "answer to: @helper while you were away"
    assert await town.ask("and then", -232) == "answer to: @helper and then"


async def test_no_token_is_anywhere(town: Town) -> None:
    """Not in a row, a file of the data folder, or a workflow's history; a file was fetched, whose link has it."""
    town.telegram.fail("sendMessage", Fault.broken())
    picture = town.telegram.chats.keep("cat.png", PNG)
    job = await town.job(-233, await town.telegram.send_file(-233, ADA, "photo", picture, caption="@helper please"))
    history = await history_of(town.maestro, job["id"])
    kept = files(town.maestro.data_dir)
    for token in (*BOTS.values(), SECRET):
        assert token.encode() not in history
        assert [path for path in kept if token.encode() in path.read_bytes()] == []
    assert re.compile(rb"bot[0-9]+:[\w-]{20,}").search(history) is None


def files(folder: Path) -> list[Path]:
    """Return every file of a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]
