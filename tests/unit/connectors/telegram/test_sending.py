"""The way out: what Telegram is asked, and what becomes of what it says."""

import asyncio
from pathlib import Path

import pytest

from connectors.base import AmbiguousSend, FailureScope, NotDispatched, PermanentSend, RetryableSend, SendFailure
from connectors.hub import attempt
from connectors.telegram.api import BUSY_SECONDS, TelegramClient
from connectors.telegram.send import html_length
from maestro.domain.errors import ConfigurationError, StoreBusy
from maestro.domain.messages import Button, Receipt
from tests.support.memory_context import MemoryContext
from tests.support.ports import free_port
from tests.support.telegram_bot import TelegramBot, chunk, telegram_bot
from tests.support.telegram_server import ADA, Fault, TelegramServer

GROUP = -100200
PNG = b"\x89PNG\r\n\x1a\n and pixels"


async def test_markdown_goes_as_html_without_previews(bot: TelegramBot) -> None:
    await bot.connector.send(chunk("**hi** <you> @ada https://x.example", ADA))
    [call] = bot.telegram.called("sendMessage")
    assert call.arguments["parse_mode"] == "HTML"
    assert call.arguments["text"] == "<b>hi</b> &lt;you&gt; @\u2060ada https://x.example"
    [post] = bot.telegram.posted(ADA)
    assert (post["text"], post["previews"]) == ("hi <you> @\u2060ada https://x.example", False)


async def test_what_telegram_cannot_read_goes_as_plain_words_once(bot: TelegramBot) -> None:
    bot.telegram.fail("sendMessage", Fault.refused("Bad Request: can't parse entities: Unsupported start tag"))
    await bot.connector.send(chunk("**hi** @ada", ADA))
    assert bot.telegram.texts(ADA) == ["**hi** @\u2060ada"]
    assert [("parse_mode" in call.arguments) for call in bot.telegram.called("sendMessage")] == [True, False]


async def test_what_telegram_cannot_read_either_way_is_refused_without_its_words(bot: TelegramBot) -> None:
    bot.telegram.fail("sendMessage", *[Fault.refused("Bad Request: can't parse entities: at 'my words'")] * 2)
    outcome = await attempt(bot.connector, chunk("**my words**", ADA))
    assert isinstance(outcome, PermanentSend)
    assert (outcome.scope, "my words" in str(outcome)) == (FailureScope.MESSAGE, False)


@pytest.mark.parametrize("marks", ["#  ", "> ", "```\n\n```", "```py\n```"])
async def test_marks_alone_are_sent_as_they_are(bot: TelegramBot, marks: str) -> None:
    await bot.connector.send(chunk(marks, ADA))
    assert bot.telegram.texts(ADA) == [marks]


@pytest.mark.parametrize(
    ("fault", "kind", "scope"),
    [
        (Fault.limited(7), RetryableSend, None),
        (Fault.broken(500), AmbiguousSend, None),
        (Fault.broken(504, stores=True), AmbiguousSend, None),
        (Fault.cut_after(), AmbiguousSend, None),
        (Fault.cut_before(), AmbiguousSend, None),
        (Fault.refused("Forbidden: bot was blocked by the user", 403), PermanentSend, FailureScope.CHANNEL),
        (Fault.refused("Forbidden: bot was kicked from the supergroup chat", 403), PermanentSend, FailureScope.CHANNEL),
        (Fault.refused("Bad Request: chat not found"), PermanentSend, FailureScope.CHANNEL),
        (
            Fault.refused("Bad Request: not enough rights to send text messages to the chat"),
            PermanentSend,
            FailureScope.CHANNEL,
        ),
        (Fault.refused("Bad Request: message thread not found"), PermanentSend, FailureScope.MESSAGE),
        (Fault.refused("Bad Request: TOPIC_CLOSED"), PermanentSend, FailureScope.MESSAGE),
        (Fault.refused("Bad Request: message is too long"), PermanentSend, FailureScope.MESSAGE),
        (Fault.refused("Request Entity Too Large", 413), PermanentSend, FailureScope.MESSAGE),
        (Fault.refused("Unauthorized", 401), PermanentSend, FailureScope.ACCOUNT),
        (Fault.refused("Not Found", 404), PermanentSend, FailureScope.ACCOUNT),
    ],
)
async def test_each_trouble_has_its_class(
    bot: TelegramBot, fault: Fault, kind: type[SendFailure], scope: FailureScope | None
) -> None:
    bot.telegram.fail("sendMessage", fault)
    outcome = await attempt(bot.connector, chunk("hi", ADA))
    assert type(outcome) is kind, repr(outcome)
    assert getattr(outcome, "scope", None) is scope
    assert len(bot.telegram.called("sendMessage")) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (Fault.limited(7), 7),
        (Fault(429, "Too Many Requests", {"retry_after": 1.5}), 1.5),
        (Fault(429, "Too Many Requests", {"retry_after": "soon"}), BUSY_SECONDS),
        (Fault(429, "Too Many Requests", {"retry_after": 10**400}), BUSY_SECONDS),
        (Fault(429, "Too Many Requests"), BUSY_SECONDS),
        (Fault.broken(429), BUSY_SECONDS),
    ],
)
async def test_how_long_telegram_asks_to_wait_is_known(bot: TelegramBot, fault: Fault, seconds: float) -> None:
    bot.telegram.fail("sendMessage", fault)
    outcome = await attempt(bot.connector, chunk("hi", ADA))
    assert isinstance(outcome, RetryableSend)
    assert outcome.retry_after is not None
    assert outcome.retry_after.total_seconds() == seconds


async def test_a_group_that_moved_nobody_knows_where_is_in_doubt(bot: TelegramBot) -> None:
    bot.telegram.fail("sendMessage", Fault(400, "Bad Request: group upgraded", {"migrate_to_chat_id": "elsewhere"}))
    assert isinstance(await attempt(bot.connector, chunk("hi", -5)), AmbiguousSend)
    assert bot.context.moves == {}


async def test_a_store_that_is_busy_before_a_message_leaves_puts_nothing_in_doubt(
    bot: TelegramBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: str) -> str:
        raise StoreBusy("the database is locked")

    monkeypatch.setattr(bot.context, "moved_to", busy)
    assert isinstance(await attempt(bot.connector, chunk("hi", -5)), NotDispatched)
    monkeypatch.undo()
    monkeypatch.setattr(bot.context, "moved", busy)
    bot.telegram.fail("sendMessage", Fault.migrated(GROUP))
    assert isinstance(await attempt(bot.connector, chunk("hi", -5)), NotDispatched)
    assert (bot.telegram.texts(-5), bot.telegram.texts(GROUP)) == ([], [])


async def test_what_is_being_sent_when_the_bot_is_stopped_gets_its_answer(bot: TelegramBot) -> None:
    """Its settings may have been changed; to cut it off would put it in doubt."""
    bot.telegram.fail("sendMessage", Fault.slow(0.3))
    sending = asyncio.create_task(attempt(bot.connector, chunk("hi", ADA)))
    await bot.telegram.until_called("sendMessage")
    await bot.stop()
    assert isinstance(await sending, Receipt)
    assert isinstance(await attempt(bot.connector, chunk("too late", ADA)), NotDispatched)
    assert bot.telegram.texts(ADA) == ["hi"]


async def test_what_hangs_does_not_keep_a_bot_from_being_stopped(
    bot: TelegramBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.telegram.api.CALL_SECONDS", 0.1)
    bot.telegram.fail("sendMessage", Fault.silence(stores=False))
    sending = asyncio.create_task(attempt(bot.connector, chunk("hi", ADA)))
    await bot.telegram.until_called("sendMessage")
    await bot.stop()
    assert isinstance(await sending, AmbiguousSend)


def test_what_makes_the_calls_shows_no_token() -> None:
    assert "token-of" not in repr(TelegramClient("1:a-token-of-nobody-in-particular", "http://127.0.0.1:1"))


async def test_what_never_left_is_surely_not_sent(telegram: TelegramServer) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with telegram_bot(telegram, start=False, base_url=nowhere) as bot:
        assert isinstance(await attempt(bot.connector, chunk("hi", ADA)), NotDispatched)


@pytest.mark.parametrize("proxy", ["socks5://user:word@127.0.0.1:1", "ftp://user:word@127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_told_of_without_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(ConfigurationError, match="ALL_PROXY") as raised:
        TelegramClient("1:a-token-of-nobody-in-particular")
    assert "word" not in str(raised.value)
    TelegramClient("1:a-token-of-nobody-in-particular", "http://127.0.0.1:1")  # to this machine none is used


@pytest.mark.parametrize("result", [None, True, 5, [], {}, {"message_id": 1}])
async def test_an_answer_that_cannot_be_read_is_in_doubt(
    bot: TelegramBot, monkeypatch: pytest.MonkeyPatch, result: object
) -> None:
    monkeypatch.setattr(bot.telegram.api, "call", lambda *_: result)
    assert isinstance(await attempt(bot.connector, chunk("hi", ADA)), AmbiguousSend)


async def test_a_success_without_a_word_is_in_doubt(bot: TelegramBot) -> None:
    bot.telegram.fail("sendMessage", Fault(status=200))
    assert isinstance(await attempt(bot.connector, chunk("hi", ADA)), AmbiguousSend)


@pytest.mark.parametrize("channel", ["@somebody", "", "12x", "--1"])
async def test_what_is_no_chat_is_refused_before_anybody_is_asked(bot: TelegramBot, channel: str) -> None:
    message = chunk("hi", ADA)
    message = message.model_copy(update={"address": message.address.model_copy(update={"channel": channel})})
    outcome = await attempt(bot.connector, message)
    assert isinstance(outcome, PermanentSend)
    assert (outcome.scope, bot.telegram.called("sendMessage")) == (FailureScope.CHANNEL, [])


@pytest.mark.parametrize(
    ("wish", "chat", "quoted"),
    [("groups", GROUP, True), ("groups", ADA, False), ("always", ADA, True), ("never", GROUP, False)],
)
async def test_what_is_answered_is_quoted_where_that_is_wished(
    telegram: TelegramServer, wish: str, chat: int, quoted: bool
) -> None:
    async with telegram_bot(telegram, quote_replies=wish, start=False) as bot:
        await bot.connector.send(chunk("hi", chat, reply_to="7:1800000000.9"))
        assert telegram.posted(chat)[0].get("replied") == (7 if quoted else None)
        await bot.connector.send(chunk("hi", chat, reply_to="press:43000000"))
        assert "replied" not in telegram.posted(chat)[1]


async def test_a_topic_is_answered_in_itself(bot: TelegramBot) -> None:
    await bot.connector.send(chunk("hi", GROUP, thread="5"))
    await bot.connector.typing(chunk("", GROUP, thread="5").address)
    assert bot.telegram.posted(GROUP)[0]["message_thread_id"] == 5
    assert bot.telegram.api.actions[0]["message_thread_id"] == "5"


async def test_buttons_carry_the_key_and_their_number(bot: TelegramBot) -> None:
    message = chunk("pick", ADA, buttons=(Button(label="Yes", value="yes"), Button(label="No", value="no")))
    await bot.connector.send(message)
    rows = bot.telegram.posted(ADA)[0]["reply_markup"]["inline_keyboard"]
    assert [(row[0]["text"], row[0]["callback_data"]) for row in rows] == [
        ("Yes", f"{message.key}:0"),
        ("No", f"{message.key}:1"),
    ]


async def test_a_group_that_moved_gets_the_message_at_its_new_place(bot: TelegramBot) -> None:
    bot.telegram.fail("sendMessage", Fault.migrated(GROUP))
    receipt = await bot.connector.send(chunk("hi", -5))
    assert isinstance(receipt, Receipt)
    assert (bot.telegram.texts(GROUP), bot.context.moves) == (["hi"], {"-5": str(GROUP)})
    await bot.connector.send(chunk("again", -5))
    assert bot.telegram.texts(GROUP) == ["hi", "again"]
    assert len(bot.telegram.called("sendMessage")) == 3


async def test_what_moved_before_is_known(telegram: TelegramServer) -> None:
    context = MemoryContext(moves={"-5": str(GROUP)})
    async with telegram_bot(telegram, context, start=False) as bot:
        await bot.connector.send(chunk("hi", -5))
    assert telegram.texts(GROUP) == ["hi"]


# Files.


async def test_a_text_goes_as_a_file(bot: TelegramBot) -> None:
    await bot.connector.send(chunk("long <text>", ADA, filename="answer.md"))
    [post] = bot.telegram.posted(ADA)
    kept = bot.telegram.chats.files[post["document"]["file_id"]]
    assert (post["document"]["file_name"], kept.content, post["caption"]) == ("answer.md", b"long <text>", "")


@pytest.mark.parametrize(("content", "kind"), [(PNG, "photo"), (b"no picture at all", "document")])
async def test_a_picture_goes_as_one_if_telegram_takes_it(
    bot: TelegramBot, tmp_path: Path, content: bytes, kind: str
) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    picture = chunk("**look**", ADA, filename="cat.png", path=path, content_type="image/png")
    await bot.connector.send(picture)
    [post] = bot.telegram.posted(ADA)
    assert (kind in post, post["caption"]) == (True, "look")


async def test_words_below_a_file_that_telegram_cannot_read_are_plain(bot: TelegramBot, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"data")
    bot.telegram.fail("sendDocument", Fault.refused("Bad Request: can't parse entities: Unsupported start tag"))
    await bot.connector.send(chunk("**look**", ADA, filename="a.bin", path=path))
    assert bot.telegram.texts(ADA) == ["**look**"]


async def test_words_that_are_too_long_for_a_file_follow_it(bot: TelegramBot, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"data")
    words = "word " * 1_500
    await bot.connector.send(chunk(words, ADA, filename="a.bin", path=path))
    file, *rest = bot.telegram.posted(ADA)
    assert (file["caption"], " ".join(one["text"] for one in rest).split()) == ("", words.split())


async def test_trouble_with_those_words_does_not_send_the_file_again(bot: TelegramBot, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"data")
    bot.telegram.fail("sendMessage", Fault.broken())
    receipt = await bot.connector.send(chunk("word " * 1_500, ADA, filename="a.bin", path=path))
    assert receipt.platform_message_id == str(bot.telegram.posted(ADA)[0]["message_id"])


async def test_a_file_that_is_gone_or_too_large_is_refused(bot: TelegramBot, tmp_path: Path) -> None:
    outcome = await attempt(bot.connector, chunk("", ADA, filename="a.bin", path=tmp_path / "gone"))
    assert isinstance(outcome, PermanentSend)
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(50 * 1000**2 + 1)
    outcome = await attempt(bot.connector, chunk("", ADA, filename="a.bin", path=huge))
    assert isinstance(outcome, PermanentSend)
    assert (outcome.scope, "50,000,001" in str(outcome)) == (FailureScope.MESSAGE, True)


# What is done to messages that are there.


async def test_a_message_that_grows(bot: TelegramBot) -> None:
    receipt = await bot.connector.send(chunk("an", ADA))
    await bot.connector.edit(chunk("**an** answer", ADA, edits=receipt.platform_message_id))
    await bot.connector.edit(chunk("**an** answer", ADA, edits=receipt.platform_message_id))
    assert bot.telegram.texts(ADA) == ["an answer"]


async def test_a_message_that_is_gone_cannot_be_written_anew(bot: TelegramBot) -> None:
    with pytest.raises(PermanentSend) as raised:
        await bot.connector.edit(chunk("an answer", ADA, edits="99"))
    assert raised.value.scope is FailureScope.MESSAGE


async def test_what_stayed_in_a_group_that_moved_cannot_be_written_anew_and_closes_no_channel(bot: TelegramBot) -> None:
    bot.telegram.fail("editMessageText", Fault.migrated(GROUP))
    with pytest.raises(PermanentSend) as raised:
        await bot.connector.edit(chunk("an answer", -5, edits="9"))
    assert (raised.value.scope, bot.context.moves) == (FailureScope.MESSAGE, {"-5": str(GROUP)})


async def test_a_reaction(telegram: TelegramServer) -> None:
    async with telegram_bot(telegram, ack_reaction="👀", start=False) as bot:
        await bot.connector.acknowledge(chunk("", ADA).address, "7")
        await bot.connector.acknowledge(chunk("", ADA).address, "press:1")
    assert [(one["chat_id"], one["message_id"]) for one in telegram.api.reactions] == [(str(ADA), "7")]


async def test_a_reaction_that_a_chat_does_not_have_is_tried_there_once(telegram: TelegramServer) -> None:
    async with telegram_bot(telegram, ack_reaction="🦖", start=False) as bot:
        for number in ("7", "8"):
            await bot.connector.acknowledge(chunk("", GROUP).address, number)
        await bot.connector.acknowledge(chunk("", ADA).address, "9")
    assert [call.arguments["chat_id"] for call in telegram.called("setMessageReaction")] == [str(GROUP), str(ADA)]


def test_text_is_measured_as_it_is_rendered() -> None:
    assert html_length("<") == len("&lt;")
    assert html_length("🎉") == 2
