"""No text makes a rule backtrack, and many threads find in a text what one finds."""

import math
import random
import re
import string
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Barrier

import pytest

from maestro.domain.redaction import TextSpan
from maestro.scanner.plugin import SpanPlugin, TextFolder
from maestro.scanner.scanner import ScanIncomplete, ShippedRules
from maestro.scanner.tokens import token_table
from tests.support import secret_corpus
from tests.support.harmless_texts import harmless

LONGEST = 4096
QUICK_SECONDS = 0.02
"""CPU time below which a text is not measured again; most need a tenth of it."""
ALLOWED_GROWTH = 8
"""How often the time of a quarter of a text goes into that of the whole: four times where it is linear, sixteen times
where it is quadratic. A ratio holds on every machine; a number of seconds would fail on a slow one.
"""
MOST_ROUNDS = 10
THREADS = 16

_PIECES = (
    *("http://a:", "http://a:b@", "://", "@", "a1:B2cdefg@a.b ", "?token=", "&sig=aB1", "authorization: ", "Bearer "),
    *("Basic aaaa", "cookie: sid=", "x-api-key: ", " -u a:b", "mysql -p ", "curl -u ", 'login("a","b",', "echo a:b|"),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\n", "-----BEGIN ", "PuTTY-User-Key-File-2\n", "AAAA\n"),
    *(
        "\\n",
        "\\\\",
        "\\_",
        "%41",
        "&amp;",
        "A \\n",
        "eyJ",
        "eyJaaaaaaaaa.",
        "MII",
        "LS0tLS1CRUdJTi",
        "0Q~",
        "AAAA",
        ":",
    ),
    *("password", "password ", "password=", "password: ", "password is ", "token token ", "secret_key", "api key "),
    *(
        "password token secret key ",
        '"password": "',
        "password\n",
        "key=key=",
        "seed phrase: a b c ",
        "<password>",
        "a.b",
    ),
    *(
        "user,password\n",
        "|password",
        "login a/",
        "pass pass=",
        "密码",
        "пароль ",
        "\u200b",
        "ａ",
        "é",
        "\ud7ff",
        " ",
        "\n",
    ),
    *("a", "A1", "aB3", "=", '"', "'", "`", "(", "[redacted]", "[", "xoxb-", "ghp_", "sk-", "AKIA", "key-", "pat."),
    *("insert into a(password,b) values (", "('a','b'),", "'',", "openssl a -k ", "net user a ", "password='a''"),
    *("password = (", "password={{", "password: |\n  ", "- name: API_KEY\n  value:", "passwordpasswordpassword.", "-"),
)


def monotonous() -> Iterator[str]:
    """Draw texts of the longest size: one piece over and over, and a piece with a tail."""
    for piece in (*_PIECES, *(token.prefix for token in token_table())):
        yield (piece * LONGEST)[:LONGEST]
        yield (piece + "aB3" * LONGEST)[: LONGEST - 1] + "!"


def mixed() -> Iterator[str]:
    """Draw texts of the longest size that begin something new every few characters."""
    rng = random.Random(21)
    for _ in range(25):
        yield "".join(rng.choices(_PIECES, k=LONGEST))[:LONGEST]
        yield "".join(rng.choices(string.printable, k=LONGEST))


@pytest.fixture(scope="module")
def rules() -> ShippedRules:
    return ShippedRules()


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of some work in this thread."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


def growth(work: Callable[[str], object], text: str) -> float:
    """Return how often the time of the first quarter goes into that of the text; 0 where the text is read quickly.

    Both are measured in turns until the growth is allowed, and the least of each counts, because a busy machine slows
    down the CPU as well.
    """
    whole = seconds(lambda: work(text))
    if whole < QUICK_SECONDS:
        return 0
    quarter, grown = math.inf, math.inf
    for _ in range(MOST_ROUNDS):
        quarter = min(quarter, seconds(lambda: work(text[: len(text) // 4])))
        whole = min(whole, seconds(lambda: work(text)))
        grown = whole / max(quarter, QUICK_SECONDS / 16)
        if grown < ALLOWED_GROWTH:
            break
    return grown


def scan(rules: ShippedRules, text: str) -> None:
    rules.find_spans(text, time.monotonic() + 60)


def test_no_text_is_slow_for_any_rule(rules: ShippedRules) -> None:
    for text in (*monotonous(), *mixed()):
        for reading in TextFolder().list_folded_forms(text):
            for plugin in rules.plugins:
                grew = growth(partial(run_rule, plugin), reading.data.decode("latin-1"))
                assert grew < ALLOWED_GROWTH, (plugin.secret_type, grew, text[:40])


def run_rule(rule: SpanPlugin, text: str) -> list[tuple[int, int]]:
    return list(rule.find_ranges(text.encode("latin-1")))


def test_a_rule_that_backtracks_is_slow() -> None:
    backtracking = re.compile("a{0,300}a*b")
    assert growth(backtracking.search, "a" * 1024) > ALLOWED_GROWTH


def test_no_text_of_one_piece_over_and_over_is_slow_for_all_rules_together(rules: ShippedRules) -> None:
    worst = max((growth(partial(scan, rules), text), text[:40]) for text in monotonous())
    assert worst[0] < ALLOWED_GROWTH, worst


def test_the_time_of_a_long_text_grows_with_its_length(rules: ShippedRules) -> None:
    for piece in ("password ", "xoxb-", "http://a:b@", "-----BEGIN PRIVATE KEY-----\n", "key=key="):
        assert growth(partial(scan, rules), piece * (32_768 // len(piece))) < ALLOWED_GROWTH, piece


def test_the_deadline_is_looked_at_between_two_rules(rules: ShippedRules) -> None:
    with pytest.raises(ScanIncomplete):
        rules.find_spans("anything", time.monotonic() - 1)


def test_what_was_found_before_the_deadline_is_told() -> None:
    value = secret_corpus.draw(random.Random(1), "ghp_{A36}")
    looks = count()  # a clock that goes on by one at each look
    with pytest.raises(ScanIncomplete) as caught:
        ShippedRules(lambda: next(looks)).find_spans(value + " and so on" * 10_000, 30)
    assert caught.value.spans == (TextSpan(0, len(value)),)


def test_sixteen_threads_are_told_what_one_is_told(rules: ShippedRules) -> None:
    texts = [text for _, text in harmless(22, 150)]
    texts += [sample.text for draw in (secret_corpus.marked, secret_corpus.named) for sample in draw(seed=23, count=1)]
    alone = [rules.find_spans(text, time.monotonic() + 60) for text in texts]
    together, fresh = Barrier(THREADS), ShippedRules()

    def everything(_: int) -> list[tuple[TextSpan, ...]]:
        together.wait()
        return [fresh.find_spans(text, time.monotonic() + 60) for text in texts]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(THREADS) as threads:
            assert all(found == alone for found in threads.map(everything, range(THREADS)))
    finally:
        sys.setswitchinterval(before)


def test_each_rule_is_a_plugin_of_detect_secrets(rules: ShippedRules) -> None:
    value = secret_corpus.draw(random.Random(1), "ghp_{A36}")
    plugins: tuple[SpanPlugin, ...] = rules.plugins
    assert len({plugin.secret_type for plugin in plugins}) == len(plugins)
    assert value in {found for plugin in plugins for found in plugin.analyze_string(f"use {value} now")}
