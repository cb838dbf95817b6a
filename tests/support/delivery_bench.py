"""A job with something to say, the step that says it, and a platform in memory."""

import asyncio
from collections import deque
from datetime import timedelta
from pathlib import Path

from activities.chunks import ChunkQueue
from activities.delivery import DeliveryActivities
from connectors.base import AmbiguousSend, Capabilities, Connector, Idempotency, LengthUnit, SendFailure, Unsettled
from connectors.hub import ConnectorHub
from maestro.domain.deliveries import Delivery, DeliveryPurpose, JobFile
from maestro.domain.jobs.flow import DeliverStep
from maestro.domain.jobs.job import JobKind, JobStatus, StepRef
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.messages import Address, OutgoingMessage, Receipt, ReceiptReport, ReceiptState
from maestro.domain.redaction import Redact, keep_text
from maestro.operations.jobs import replay_job
from maestro.store.files import MediaFolder
from maestro.store.jobs.steps import OwnAttempt, use_attempt
from tests.support.job_rows import JobRows
from tests.support.spoken import NoTyping

CUT = AmbiguousSend("the connection was cut")
NOTICE = "one. " * 20


class Platform:
    """A platform in memory, and the connector to it; ``script`` says how the next sends go.

    None takes the message, a failure does not, and an ambiguous one takes it without saying so.
    """

    platform, account, token_digest = "web", "default", ""

    def __init__(self, idempotency: Idempotency, window: timedelta | None = None) -> None:
        self.capabilities = Capabilities(64, LengthUnit.CODE_POINTS, 8, idempotency, native_window=window)
        self.posts: list[OutgoingMessage] = []
        self.script: deque[SendFailure | None] = deque()
        self.refusals: list[str] = []

    async def run(self) -> None:
        """Receive nothing."""

    async def typing(self, address: Address) -> None:
        """Show nothing."""

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Take the message or not."""
        failure = self.script.popleft() if self.script else None
        known = self.capabilities.idempotency is Idempotency.NATIVE and message.key in {one.key for one in self.posts}
        if (failure is None or isinstance(failure, AmbiguousSend)) and not known:
            self.posts.append(message)
        if failure is not None:
            raise failure
        return Receipt(platform_message_id=f"p-{len(self.posts)}")

    # What the step asks of streaming.

    async def end_streaming(self, job_id: str) -> None:
        """Show no drafts."""

    async def settle_draft(self, job_id: str, connector: Connector) -> None:
        """Show no drafts."""


class Readable(Platform):
    """A platform whose messages can be read back."""

    looks = 0

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for the key."""
        self.looks += 1
        return next((Receipt(platform_message_id="found") for one in self.posts if one.key == message.key), None)


class Silent(Platform):
    """A platform that may know, and never says."""

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Say nothing."""
        raise Unsettled("no word of it")


class FlatFolder(MediaFolder):
    """A media folder in which a test names the files as it likes."""

    def path_of_digest(self, digest: str) -> Path:
        """Return the file of this name."""
        return self._root / digest


class Bench:
    """A job with something to say, and its step; ``folder`` keeps the files that go with it."""

    def __init__(self, rows: JobRows, folder: Path = Path()) -> None:
        self.rows = rows
        self.purpose = DeliveryPurpose.NOTICE
        self.redact: Redact = keep_text
        self.folder = folder
        self.job_id = self.begin()

    def begin(self) -> str:
        """Add a job that runs."""
        job_id = self.rows.add()
        with self.rows.store.begin() as tx:
            tx.jobs.update_job(job_id, status=JobStatus.RUNNING, notice=NOTICE, started_at=tx.now)
        return job_id

    def deliver(self, platform: Platform) -> SendFailure | None:
        """Run one attempt of the step; return how it failed."""
        hub = ConnectorHub()
        queue = ChunkQueue(FlatFolder(self.folder))
        steps = DeliveryActivities(self.rows.store, hub, NoTyping(), lambda: None, lambda: self.redact, queue, platform)
        step = DeliverStep(job_id=self.job_id, step="deliver", purpose=self.purpose, closes=True)
        attempt = OwnAttempt(step, self.begin_attempt())
        try:
            with use_attempt(attempt), hub.register_while_running(platform, platform.refusals.append):
                asyncio.run(steps.deliver(step))
        except SendFailure as failure:
            return failure
        return None

    def begin_attempt(self) -> int:
        """Note that an attempt at the step begins, in this process or in another one; return its number."""
        with self.rows.store.begin() as tx:
            return tx.jobs.steps.start_attempt(StepRef(job_id=self.job_id, step="deliver"), "deliver", 1)

    def answer(self, text: str, kind: JobKind = JobKind.MESSAGE) -> None:
        """Let the job have an answer to say instead."""
        self.purpose = DeliveryPurpose.ANSWER
        with self.rows.store.begin() as tx:
            tx.jobs.update_job(self.job_id, notice="", said=text, kind=kind)

    def file(self, name: str, size: int, caption: str = "a caption") -> None:
        """Let the agent want to send a file."""
        (self.folder / name).write_bytes(bytes(size))
        with self.rows.store.begin() as tx:
            file = JobFile(
                job_id=self.job_id, digest=name, filename=name, size=size, caption=caption, created_at=tx.now
            )
            tx.deliveries.files.add_file(file)
            tx.deliveries.files.add_file(file)

    def told(self, key: str, standing: ReceiptState, *, known: bool = True) -> None:
        """Let the platform say what became of a chunk, which may be one that we do not know any more."""
        with self.rows.store.begin() as tx:
            report = ReceiptReport(platform_message_id="p-1", standing=standing, error="nobody is there")
            assert tx.deliveries.reports.apply_report(Address(platform="web", channel=""), key, report) is known

    def resume(self) -> None:
        """Let the job that failed run again."""
        with self.rows.store.begin() as tx:
            replay_job(tx, self.job_id, ReplayMode.RESUME, "admin")
            tx.jobs.update_job(self.job_id, status=JobStatus.RUNNING)

    def chunks(self) -> list[Delivery]:
        """Return the chunks as they are now."""
        with self.rows.store.view() as tx:
            return list(tx.deliveries.list_chunks(self.job_id, self.purpose))

    def stop(self) -> None:
        """Ask the job to stop."""
        with self.rows.store.begin() as tx:
            tx.jobs.request_stop(self.job_id)

    def states(self) -> list[str]:
        """Return their states."""
        return [str(chunk.state) for chunk in self.chunks()]

    def status(self) -> JobStatus:
        """Return that of the job."""
        with self.rows.store.view() as tx:
            return tx.jobs.get(self.job_id).status
