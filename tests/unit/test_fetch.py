"""The safe downloader: whom it asks, what it refuses, and where it stops."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import pytest
import trustme
from pydantic import SecretStr

from maestro.fetch import (
    FetchAccess,
    Fetched,
    FetchFailed,
    FetchLimits,
    FetchRefused,
    Network,
    download,
    fetch_response,
)
from tests.support.raw_server import Detour, FakeResolver, RawServer, answer_of, redirect_to

PUBLIC = "93.184.215.14"
ANOTHER = "151.101.1.69"
LIMITS = FetchLimits(max_bytes=10_000, seconds=20)
TOKEN = FetchAccess(bearer=SecretStr("t0ken"))


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer.running() as server:
        server.answers["/"] = answer_of(b"hello", "Content-Type: text/plain; charset=utf-8")
        yield server


def network(server: RawServer, dead: Iterable[str] = (), **hosts: Sequence[Iterable[str]]) -> Network:
    """Return a network in which every address leads to the server, and these hosts exist."""
    names = {"example_com": [[PUBLIC]], "other_org": [[ANOTHER]], **hosts}
    return Network(resolve=FakeResolver(**names), backend=Detour(server, dead))


async def got(
    server: RawServer, url: str = "http://example.com/", limits: FetchLimits = LIMITS, **hosts: object
) -> Fetched:
    return await fetch_response(url, limits, network=network(server, **hosts))  # type: ignore[arg-type]


async def test_it_brings_status_type_and_body(server: RawServer) -> None:
    answer = await got(server)
    assert (answer.status, answer.content_type, answer.body) == (200, "text/plain; charset=utf-8", b"hello")
    assert answer.url == "http://example.com/"
    assert "\r\nHost: example.com\r\n" in server.asked[0]


async def test_an_error_of_the_server_is_an_answer(server: RawServer) -> None:
    assert (await got(server, "http://example.com/missing")).status == 404


async def test_nothing_of_the_environment_leads_to_a_proxy(server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await got(server)).body == b"hello"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "//example.com/",
        "example.com",
        "",
        "http:///nowhere",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://exa\nmple.com/",
        "http://example.com:99999/",
        "http://example.com:http/",
        "http://exa%6dple.com/",
        "http://a b/",
    ],
)
async def test_what_is_no_plain_web_address_is_refused_before_anybody_is_asked(server: RawServer, url: str) -> None:
    with pytest.raises(FetchRefused):
        await got(server, url)
    assert not server.asked


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "192.88.99.1",
        "3fff::1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "192.0.2.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "93.184.215.014",
        "１２７.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:93.184.215.14]",
        "[::127.0.0.1]",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[2606:2800:21f:cb07::1%25eth0]",
        "[fc00::1]",
        "[fec0::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::]",
        "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
        "[2001:db8::1]",
    ],
)
async def test_addresses_that_are_not_public_or_in_disguise_are_refused(server: RawServer, host: str) -> None:
    with pytest.raises(FetchRefused):
        await got(server, f"http://{host}/")
    assert not server.asked


@pytest.mark.parametrize("host", [PUBLIC, "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]", "[64:ff9b::5db8:d70e]"])
async def test_public_addresses_are_fine(server: RawServer, host: str) -> None:
    assert (await got(server, f"http://{host}/")).body == b"hello"


@pytest.mark.parametrize("addresses", [["127.0.0.1"], [PUBLIC, "127.0.0.1"], ["::1"], ["::ffff:10.0.0.1"]])
async def test_a_name_is_refused_when_one_of_its_addresses_is_private(server: RawServer, addresses: list[str]) -> None:
    with pytest.raises(FetchRefused, match=r"example\.com has an address that is not public"):
        await got(server, example_com=[addresses])
    assert not server.asked


async def test_the_connection_goes_to_the_address_that_was_checked(server: RawServer) -> None:
    there = network(server, example_com=[[PUBLIC], ["127.0.0.1"]])
    assert (await fetch_response("http://example.com/", LIMITS, network=there)).body == b"hello"
    assert isinstance(there.backend, Detour)
    assert isinstance(there.resolve, FakeResolver)
    assert (there.backend.targets, there.resolve.asked) == ([(PUBLIC, 80)], ["example.com"])


async def test_a_name_that_turns_private_before_the_redirect_is_refused_there(server: RawServer) -> None:
    server.answers["/"] = redirect_to("/again")
    with pytest.raises(FetchRefused, match="not public"):
        await got(server, example_com=[[PUBLIC], ["127.0.0.1"]])
    assert not server.requested("/again")


async def test_the_next_address_is_tried_when_nobody_listens_at_the_first(server: RawServer) -> None:
    assert (await got(server, dead=[ANOTHER], example_com=[[ANOTHER, PUBLIC]])).body == b"hello"
    with pytest.raises(FetchFailed, match=r"example\.com: nobody listens there"):
        await got(server, dead=[PUBLIC])


async def test_a_name_that_does_not_exist_fails_and_may_be_tried_again(server: RawServer) -> None:
    with pytest.raises(FetchFailed, match=r"nowhere\.example") as failure:
        await got(server, "http://nowhere.example/secret-path")
    assert failure.value.retryable
    assert "secret-path" not in str(failure.value)


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://internal.corp/",
        "file:///etc/passwd",
        "http://2130706433/",
        "http://user:pw@other.org/",
        "//127.0.0.1/",
        "ftp://other.org/",
    ],
)
async def test_a_redirect_is_checked_like_the_first_address(server: RawServer, location: str) -> None:
    server.answers["/"] = redirect_to(location)
    with pytest.raises(FetchRefused):
        await got(server, internal_corp=[["10.0.0.1"]])
    assert len(server.asked) == 1


async def test_redirects_are_followed_five_times(server: RawServer) -> None:
    for number in range(6):
        server.answers[f"/{number}"] = redirect_to(str(number + 1))
    server.answers["/6"] = answer_of(b"at last")
    assert (await got(server, "http://example.com/1")).url == "http://example.com/6"
    with pytest.raises(FetchRefused, match="more than 5"):
        await got(server, "http://example.com/0")


async def test_only_hosts_and_ports_of_the_list_are_asked(server: RawServer) -> None:
    server.answers["/away"] = redirect_to("http://other.org/")
    access = FetchAccess(hosts=frozenset({"example.com"}), ports=frozenset({80}))
    assert (await fetch_response("http://EXAMPLE.com/", LIMITS, access, network(server))).status == 200
    for url in ("http://other.org/", "http://example.com/away", "http://example.com:81/"):
        with pytest.raises(FetchRefused):
            await fetch_response(url, LIMITS, access, network(server))


async def test_private_hosts_of_the_operator_are_asked_all_the_same(server: RawServer) -> None:
    access = FetchAccess(private_hosts=frozenset({"intranet", "127.0.0.1"}))
    for url in ("http://intranet/", "http://127.0.0.1/"):
        assert (await fetch_response(url, LIMITS, access, network(server, intranet=[["10.0.0.1"]]))).body == b"hello"
    with pytest.raises(FetchRefused):
        await fetch_response("http://10.0.0.1/", LIMITS, access, network(server))


async def test_the_token_is_shown_to_the_first_origin_only(server: RawServer) -> None:
    server.answers |= {"/here": redirect_to("/there"), "/there": redirect_to("http://other.org/away")}
    server.answers |= {"/away": redirect_to("http://example.com:81/port"), "/port": redirect_to("http://example.com/")}
    assert (await fetch_response("http://example.com/here", LIMITS, TOKEN, network(server))).body == b"hello"
    shown = [head.split()[1] for head in server.asked if "Authorization: Bearer t0ken" in head]
    assert (len(server.asked), shown) == (5, ["/here", "/there", "/"])


async def test_the_token_shows_in_no_text(server: RawServer) -> None:
    with pytest.raises(FetchFailed) as failure:
        await fetch_response("http://example.com/", LIMITS, TOKEN, network(server, dead=[PUBLIC]))
    assert "t0ken" not in f"{failure.value!r} {failure.value.__cause__!r} {TOKEN!r}"


async def chunked(writer: asyncio.StreamWriter, body: bytes, *headers: str) -> None:
    writer.write("\r\n".join(["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *headers, "", ""]).encode())
    while True:
        writer.write(b"%x\r\n%s\r\n" % (len(body), body))
        await writer.drain()


async def test_a_body_that_says_it_is_too_large_is_not_read(server: RawServer) -> None:
    server.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 10001\r\n\r\n"
    with pytest.raises(FetchRefused, match="10,000 bytes"):
        await got(server)


async def test_an_endless_body_is_refused_at_the_limit(server: RawServer) -> None:
    server.answers["/"] = lambda writer: chunked(writer, b"x" * 1000)
    with pytest.raises(FetchRefused, match="10,000 bytes"):
        await got(server)


async def test_an_endless_body_is_cut_at_the_limit_where_a_part_will_do(server: RawServer) -> None:
    server.answers["/"] = lambda writer: chunked(writer, b"x" * 999)
    answer = await got(server, limits=FetchLimits(max_bytes=10_000, seconds=20, cut=True))
    assert (answer.body, answer.cut) == (b"x" * 10_000, True)


async def test_a_body_of_exactly_the_limit_is_whole(server: RawServer) -> None:
    server.answers["/"] = answer_of(b"x" * 10_000)
    answer = await got(server, limits=FetchLimits(max_bytes=10_000, seconds=20, cut=True))
    assert (len(answer.body), answer.cut) == (10_000, False)


async def test_a_packed_body_is_unpacked(server: RawServer) -> None:
    server.answers["/"] = answer_of(gzip.compress(b"hello " * 1000), "Content-Encoding: gzip")
    assert (await got(server)).body == b"hello " * 1000


async def test_a_packed_body_counts_unpacked(server: RawServer) -> None:
    server.answers["/"] = answer_of(gzip.compress(b"\0" * 5_000_000), "Content-Encoding: gzip")
    with pytest.raises(FetchRefused, match="10,000 bytes"):
        await got(server)


@pytest.mark.parametrize("headers", [("Content-Encoding: gzip",), ("Content-Encoding: br",)])
async def test_a_body_that_cannot_be_unpacked_fails(server: RawServer, headers: tuple[str, ...]) -> None:
    server.answers["/"] = answer_of(b"not packed", *headers)
    with pytest.raises(FetchFailed):
        await got(server)


async def test_a_body_that_breaks_off_fails(server: RawServer) -> None:
    server.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
    with pytest.raises(FetchFailed):
        await got(server)
    server.answers["/"] = answer_of(gzip.compress(bytes(range(256)) * 4)[:-20], "Content-Encoding: gzip")
    with pytest.raises(FetchFailed, match="incomplete"):
        await got(server)


async def test_everything_together_has_one_deadline(server: RawServer) -> None:
    async def dribble(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    server.answers["/"] = dribble
    with pytest.raises(FetchFailed, match=r"example\.com took longer than 0\.3 seconds"):
        await got(server, limits=FetchLimits(max_bytes=100_000, seconds=0.3))


async def test_a_download_is_written_as_it_arrives(server: RawServer, tmp_path: Path) -> None:
    server.answers["/"] = answer_of(b"\x89PNG" * 1000, "Content-Type: image/png")
    head = await download("http://example.com/", tmp_path / "image", LIMITS, network=network(server))
    assert (head.status, head.content_type) == (200, "image/png")
    assert (tmp_path / "image").read_bytes() == b"\x89PNG" * 1000


async def test_a_download_over_the_limit_is_refused(server: RawServer, tmp_path: Path) -> None:
    server.answers["/"] = lambda writer: chunked(writer, b"x" * 1000)
    with pytest.raises(FetchRefused):
        await download("http://example.com/", tmp_path / "image", LIMITS, network=network(server))
    assert (tmp_path / "image").stat().st_size <= 10_000


async def test_tls_proves_the_name_and_not_the_address() -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("example.com").configure_cert(context)

    def trusting() -> ssl.SSLContext:
        trusted = ssl.create_default_context()
        authority.configure_trust(trusted)
        return trusted

    async with RawServer.running(context) as server:
        server.answers["/"] = answer_of(b"hello")
        hosts = {"example.com": PUBLIC, "other.org": ANOTHER}

        async def resolve(host: str, port: int) -> Sequence[str]:
            return [hosts[host]]

        there = Network(resolve=resolve, backend=Detour(server), tls=trusting)
        assert (await fetch_response("https://example.com/", LIMITS, network=there)).body == b"hello"
        with pytest.raises(FetchFailed, match=r"other\.org: .*certificate"):
            await fetch_response("https://other.org/", LIMITS, network=there)
