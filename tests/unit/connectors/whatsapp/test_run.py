"""How a number is connected: who it is, what is wrong with it, and what becomes of it when its token ends."""

import subprocess
import sys

import pytest

from connectors.base import ConnectorState
from connectors.failures import AccountRefused
from connectors.platforms import platform
from connectors.whatsapp.api import GraphClient
from connectors.whatsapp.platform import WhatsAppOptions
from maestro.domain.errors import ConfigurationError
from tests.support.instance import until
from tests.support.whatsapp_number import instance, whatsapp_and_number
from tests.support.whatsapp_server import NUMBER_ID, SECOND_NUMBER_ID, Fault, WhatsAppServer


async def test_operators_are_told_who_we_are_and_where_meta_posts() -> None:
    async with whatsapp_and_number() as number:
        told = await number.told(ConnectorState.RUNNING)
        assert told == "Maestro (+1 555-010-0001), webhook /platforms/whatsapp/default"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.refused(190), "make a new one for the system user"),
        (Fault.refused(100, subcode=33), "check the phoneNumberId"),
        (Fault.refused(10), "whatsapp_business_messaging"),
        (Fault(status=401), "make a new one for the system user"),
    ],
)
async def test_who_is_not_let_in_says_how_to_mend_it(fault: Fault, words: str) -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.fail("number", fault)
        await number.start()
        assert number.running is not None
        with pytest.raises(AccountRefused, match=words):
            await number.running
        number.running = None
        assert words in await number.told(ConnectorState.FAILED)


async def test_a_number_that_does_not_exist_is_refused() -> None:
    async with whatsapp_and_number(start=False, phone_number_id="999") as number:
        await number.start()
        assert number.running is not None
        with pytest.raises(AccountRefused, match="phoneNumberId"):
            await number.running
        number.running = None


@pytest.mark.parametrize("fault", [Fault.broken(), Fault.cut_before(), Fault.limited(1)])
async def test_whom_nobody_answers_tries_again_and_says_so(fault: Fault) -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.fail("number", fault)
        await number.start()
        states = [state for state, _ in number.context.states]
        assert states == [ConnectorState.STARTING, ConnectorState.DEGRADED, ConnectorState.RUNNING]


async def test_a_token_that_ends_later_is_found_out() -> None:
    async with whatsapp_and_number(look_seconds=0.05) as number:
        await number.whatsapp.until_called("number", 3)
        number.whatsapp.business.tokens.clear()
        assert number.running is not None
        with pytest.raises(AccountRefused, match="expired or was revoked"):
            await number.running
        number.running = None


async def test_what_is_posted_while_meta_answers_nothing_is_taken() -> None:
    async with whatsapp_and_number(look_seconds=0.05) as number:
        number.whatsapp.fail("number", *[Fault.broken()] * 3)
        await number.told(ConnectorState.DEGRADED)
        number.whatsapp.say("4915100000001", "hello")
        await until(lambda: number.said() == ["hello"])


async def test_numbers_that_share_a_token_are_told_apart() -> None:
    """A lease of the token would let only one of them be connected."""
    async with (
        whatsapp_and_number(start=False) as one,
        whatsapp_and_number(start=False, phone_number_id=SECOND_NUMBER_ID) as two,
        whatsapp_and_number(start=False) as again,
    ):
        assert one.connector.token_digest == again.connector.token_digest != two.connector.token_digest


async def test_a_poor_name_is_told_to_operators() -> None:
    async with whatsapp_and_number(start=False) as number:
        described = number.connector._describe_number({"quality_rating": "RED"})
        assert "users report or block the number" in described


async def test_what_is_missing_is_named() -> None:
    described = platform("whatsapp")
    async with WhatsAppServer.running() as whatsapp:
        whole = instance(whatsapp)
    assert described.complete(whole) is None
    for name in described.secrets:
        secrets = {other: value for other, value in whole.secrets.items() if other != name}
        problem = described.complete(type(whole)("default", secrets, whole.options))
        assert problem is not None
        assert name in problem
    assert "phoneNumberId" in str(described.complete(type(whole)("default", whole.secrets, WhatsAppOptions())))


@pytest.mark.parametrize(
    "proxy", ["socks9://ada:hidden@proxy:1", "http://ada:hidden@proxy:port", "socks5://ada:hidden@x"]
)
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY") as told:
        GraphClient("token", NUMBER_ID, "v26.0")
    assert "hidden" not in str(told.value)
    GraphClient("token", NUMBER_ID, "v26.0", "http://127.0.0.1:1")


def test_a_process_without_whatsapp_does_not_load_its_client() -> None:
    look = "import sys, connectors.platforms as found; found.platform('whatsapp').options()"
    subprocess.run([sys.executable, "-c", f"{look}; assert 'connectors.whatsapp.api' not in sys.modules"], check=True)
