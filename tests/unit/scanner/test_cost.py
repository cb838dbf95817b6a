"""What a text costs that somebody wrote to make the rules slow, and that many threads are told the same."""

import random
import string
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
ALLOWED_SECONDS = 0.05
"""CPU time of one rule, which needs a hundred times less unless it backtracks."""
ALLOWED_TOGETHER = 0.25
"""CPU time of all rules, several times what they need on a slow machine."""
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
    """Return the CPU time of some work: the least of ten, because a busy machine slows down the CPU as well."""
    took = []
    for _ in range(10):
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
        if took[-1] < ALLOWED_SECONDS / 2:
            break
    return min(took)


def scan(rules: ShippedRules, text: str) -> float:
    return seconds(lambda: rules.find_spans(text, time.monotonic() + 60))


def test_no_text_is_slow_for_any_rule(rules: ShippedRules) -> None:
    for text in (*monotonous(), *mixed()):
        for reading in TextFolder().list_folded_forms(text):
            for plugin in rules.plugins:
                took = seconds(lambda plugin=plugin, data=reading.data: list(plugin.find_ranges(data)))  # type: ignore[misc]
                assert took < ALLOWED_SECONDS, (plugin.secret_type, took, text[:40])


def test_no_text_of_one_piece_over_and_over_is_slow_for_all_rules_together(rules: ShippedRules) -> None:
    worst = max((scan(rules, text), text[:40]) for text in monotonous())
    assert worst[0] < ALLOWED_TOGETHER, worst


def test_four_times_the_text_does_not_take_sixteen_times_as_long(rules: ShippedRules) -> None:
    for piece in ("password ", "xoxb-", "http://a:b@", "-----BEGIN PRIVATE KEY-----\n", "key=key="):
        once, more = piece * (16_384 // len(piece)), piece * (4 * 16_384 // len(piece))
        assert scan(rules, more) < 10 * max(scan(rules, once), 0.005), piece


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
