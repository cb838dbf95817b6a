"""The Slack connector: one app in one workspace, over Socket Mode or the Events API."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog
from pydantic import SecretStr
from starlette.routing import BaseRoute

from connectors.base import Capabilities, Connector, ConnectorContext, ConnectorState, Idempotency, LengthUnit
from connectors.capabilities import Markup, Transport
from connectors.outcomes import AccountRefused, NotDispatched, PermanentSend, Scope, SendFailure
from connectors.pace import Pace, pauses
from connectors.platforms import Instance
from connectors.slack import presses, send
from connectors.slack.api import client, translated
from connectors.slack.catch_up import CatchUp
from connectors.slack.config import APP_TOKEN, BOT_TOKEN, PLATFORM, SIGNING_SECRET, SlackOptions
from connectors.slack.ears import Ears
from connectors.slack.errors import (
    MISSING_SCOPE,
    NO_THREAD,
    Refused,
    SlackTrouble,
    refused_account,
    search_failure,
    send_failure,
)
from connectors.slack.history import History
from connectors.slack.inbound import Inbound
from connectors.slack.media import Media
from connectors.slack.people import People
from connectors.slack.receive import TS, Us
from connectors.slack.render import mrkdwn
from connectors.slack.scopes import lacking, us_of
from connectors.slack.socket import Socket
from connectors.slack.webhook import Webhook
from maestro.domain.errors import ConfigurationError
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt

MAX_LENGTH = 3_900
"""Code points of one message; Slack advises at most 4,000 and cuts what is much longer."""
TYPING_SECONDS = 90.0
"""Slack shows a status for two minutes."""
MAX_FILE_BYTES = 1024**3

log = structlog.get_logger(__name__)


def connect(instance: Instance, context: ConnectorContext) -> Connector:
    """Make the connector of an account, by the way its messages arrive."""
    options = instance.options
    if not isinstance(options, SlackOptions):
        raise ConfigurationError(f"slack/{instance.account}: these are no options of Slack")
    return (
        SlackEvents(instance, context, options)
        if options.mode == "events"
        else SlackConnector(instance, context, options)
    )


def _capabilities(transport: Transport, options: SlackOptions) -> Capabilities:
    return Capabilities(
        max_length=MAX_LENGTH,
        unit=LengthUnit.CODE_POINTS,
        typing_interval=TYPING_SECONDS,
        idempotency=Idempotency.RECONCILE,
        markup=Markup.OWN,
        transport=transport,
        max_file_bytes=MAX_FILE_BYTES,
        catches_up=True,
        max_buttons=presses.MOST,
        edit_interval=options.streaming_seconds if options.streaming else 0,
    )


class SlackConnector:
    """An app that listens over a socket; it needs no address that others can reach."""

    platform = PLATFORM

    def __init__(self, instance: Instance, context: ConnectorContext, options: SlackOptions) -> None:
        self.account = instance.account
        self.token_digest = instance.token_digest
        self.capabilities = _capabilities(Transport.SOCKET, options)
        self.ears = Ears(self._refuse)
        self._context = context
        self._options = options
        self._app_token = instance.secret(APP_TOKEN)
        self._web = client(instance.secret(BOT_TOKEN), options.base_url)
        self._people = People(self._web)
        self._catch_up = CatchUp(context, History(self._web, options.history_seconds), options)
        self._media = Media(self._web, SecretStr(instance.secret(BOT_TOKEN)), options)
        self._pace = Pace(lambda _: options.pace_seconds)
        self._inbound: Inbound | None = None
        self._lacking = ""
        self._shows_typing = self._reacts = True
        self._refusal: asyncio.Future[AccountRefused] | None = None

    async def run(self) -> None:
        """Listen until cancelled; raises ``AccountRefused`` when Slack does not let us, now or later."""
        self._refusal = asyncio.get_running_loop().create_future()
        try:
            await self._context.report(ConnectorState.STARTING)
            us = await self._introduced()
            self._inbound = Inbound(self._context, us, self._people, self._catch_up, self._options.channels)
            self.ears.open(self._inbound, presses.Presses(self._context, us, partial(send.whisper, self._web)))
            await self._until_refused(self._listen(), self._catch_up.work(self._inbound))
        except AccountRefused as refused:
            await self._context.report(ConnectorState.FAILED, str(refused))
            raise

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Post a chunk, or its content as a file, once; raises a ``SendFailure``."""
        await self._pace.wait(message.address.channel)
        try:
            return await (send.upload if message.filename else send.post)(self._web, message)
        except SlackTrouble as trouble:
            raise self._failed(trouble, spare=bool(message.filename)) from None

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for a message by its key; raises ``AmbiguousSend`` while Slack does not say."""
        try:
            return await send.find(self._web, message)
        except SlackTrouble as trouble:
            if isinstance(trouble, Refused) and trouble.code == NO_THREAD:
                return None
            raise search_failure(trouble) from None

    async def edit(self, message: OutgoingMessage) -> None:
        """Write a message of ours anew; raises a ``SendFailure``."""
        try:
            await send.edit(self._web, message)
        except SlackTrouble as trouble:
            raise self._failed(trouble, spare=False) from None

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Put the reaction of the settings to a message; a command and a press are none, and have no reaction."""
        emoji = self._options.ack_reaction.strip(":")
        if not emoji or not self._reacts or not TS.fullmatch(message_id):
            return
        try:
            await send.react(self._web, address, message_id, emoji)
        except SlackTrouble as trouble:
            if isinstance(trouble, Refused) and trouble.code == MISSING_SCOPE:
                self._reacts = False
                log.warning("slack.cannot_react", account=self.account, reason=str(trouble))
                return
            raise send_failure(trouble, spare=True) from None

    async def typing(self, address: Address) -> None:
        """Show in a thread that an answer is being written; elsewhere Slack has no way to."""
        if not address.thread or not self._shows_typing:
            return
        try:
            await send.show_typing(self._web, address)
        except SlackTrouble as trouble:
            self._shows_typing = refused_account(trouble, BOT_TOKEN) is None
            raise NotDispatched(str(trouble)) from None

    def render(self, text: str) -> str:
        """Return Markdown as Slack's own markup."""
        return mrkdwn(text)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Get a file by its id; raises a ``FetchFailure``."""
        return await self._media.fetch(attachment, folder)

    async def catch_up(self) -> None:
        """Take in what every known channel has after its cursor, within the caps of the settings."""
        if self._inbound is not None:
            self._catch_up.look_again()
            await self._catch_up.through(self._inbound)

    def listening(self) -> None:
        """Begin to catch up: before this, events may have been lost."""
        self._catch_up.look_again()

    async def connected(self) -> None:
        """Tell operators that messages come in."""
        await self._context.report(ConnectorState.RUNNING, f"Socket Mode{self._lacking}")

    async def broken(self, why: str) -> None:
        """Tell operators that none do."""
        log.warning("slack.disconnected", account=self.account, reason=why)
        await self._context.report(ConnectorState.DEGRADED, why)

    def _failed(self, trouble: SlackTrouble, *, spare: bool) -> SendFailure:
        """Return how a send ended; the run ends with it when only an operator can help."""
        failure = send_failure(trouble, spare=spare)
        if isinstance(failure, PermanentSend) and failure.scope is Scope.ACCOUNT:
            self._refuse(AccountRefused(str(failure)))
        return failure

    async def _listen(self) -> None:
        await Socket(self._web, self._app_token, self.ears, self).run()

    async def _introduced(self) -> Us:
        """Ask Slack who we are, until it says so."""
        for pause in pauses():
            await asyncio.sleep(pause)
            try:
                with translated():
                    answer = await self._web.auth_test()
            except SlackTrouble as trouble:
                refused = refused_account(trouble, BOT_TOKEN)
                if refused is not None:
                    raise refused from None
                await self.broken(str(trouble))
            else:
                self._lacking = lacking(answer, self._options)
                return replace(us_of(self.account, answer), every_line=not self._options.require_mention)
        raise AssertionError("the pauses never end")

    async def _until_refused(self, *work: Coroutine[None, None, None]) -> None:
        """Do everything at once until something fails or Slack refuses us."""
        working = [asyncio.create_task(one) for one in (*work, self._refused())]
        try:
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in working:
                one.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _refused(self) -> None:
        assert self._refusal is not None
        raise await self._refusal

    def _refuse(self, refused: AccountRefused) -> None:
        """End the run: only an operator can help."""
        if self._refusal is not None and not self._refusal.done():
            self._refusal.set_result(refused)


class SlackEvents(SlackConnector):
    """An app to which Slack posts, on the web connector's port."""

    def __init__(self, instance: Instance, context: ConnectorContext, options: SlackOptions) -> None:
        super().__init__(instance, context, options)
        self.capabilities = _capabilities(Transport.WEBHOOK, options)
        self._webhook = Webhook(instance.secret(SIGNING_SECRET), self.ears)

    def routes(self) -> Sequence[BaseRoute]:
        """Return where Slack posts: ``events``, ``commands`` and ``interactive`` below its own path."""
        return self._webhook.routes()

    async def _listen(self) -> None:
        self.listening()
        where = f"/platforms/slack/{self.account}/events"
        await self._context.report(ConnectorState.RUNNING, f"Events API, {where}{self._lacking}")
        await asyncio.Event().wait()
