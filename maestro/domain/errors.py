"""Every error Maestro raises on purpose; the class name is the failure type in Temporal and the ``error`` in JSON."""

from datetime import datetime, timedelta
from enum import StrEnum


class Patience(StrEnum):
    """Who we are waiting for when something fails, which decides how long and how often."""

    PROVIDER = "provider"
    PLATFORM = "platform"
    STORE = "store"
    OURSELVES = "ourselves"


class WaitReason(StrEnum):
    """What a waiting job waits for."""

    ACCOUNT = "account"
    PROVIDER = "provider"
    BUDGET = "budget"
    PERSON = "person"


class MaestroError(Exception):
    """The base of all our errors.

    ``public`` is a fixed sentence without user text, prompts or secrets: it alone may enter a workflow history.
    ``str(error)`` may say more and stays in logs, rows and answers to the operator.
    """

    public = "Maestro could not do this."
    retryable = False
    retry_after: timedelta | None = None
    patience = Patience.OURSELVES


class ConfigurationError(MaestroError):
    """The configuration is wrong; the message names the key and the fix."""

    public = "The configuration is wrong."


class DataFolderBusy(MaestroError):
    """Another process owns the data folder."""

    public = "Another Maestro process uses this data folder."


class PortTaken(MaestroError):
    """A port is in use by something that is not ours; the message names the port and its setting."""

    public = "A port is already in use."


class TemporalUnavailable(MaestroError):
    """The Temporal server cannot be reached or did not become healthy."""

    public = "Temporal cannot be reached."
    retryable = True


class StoreBusy(MaestroError):
    """The database could not be written or read in time: locked by somebody else, or its disk is full."""

    public = "The store is busy."
    retryable = True
    patience = Patience.STORE


class StoreFull(StoreBusy):
    """The database could not be written because its disk is full."""

    public = "The disk of the store is full."


class StoreDamaged(StoreBusy):
    """Pages of the database are damaged; the message says how to save what there is.

    Work waits as for a busy store: it goes on once a backup is restored.
    """

    public = "The database is damaged."


class NewerDatabase(MaestroError):
    """The store was written by a newer release; this one does not touch it."""

    public = "The database was written by a newer version of Maestro."


class OlderDatabase(MaestroError):
    """The store was written by an earlier release, and this process is not the one to change it."""

    public = "The database was written by an older version of Maestro."


class StoreUnreadable(MaestroError):
    """The database file cannot be opened or is not a Maestro store."""

    public = "The database cannot be opened."


class Backlogged(MaestroError):
    """The inbox is full; the sender is told to come back, and nothing was stored."""

    public = "Too many messages are waiting."
    retryable = True


class InvalidMessage(MaestroError):
    """An incoming message breaks a rule; the text names which."""

    public = "The message is not valid."


class InvalidEdit(MaestroError):
    """Something that is to be made or changed breaks a rule; the message names the field and the fix."""

    public = "What was asked for is not valid."


class NotFound(MaestroError):
    """The thing asked for does not exist."""

    public = "Not found."


class Conflict(MaestroError):
    """The thing asked for does not fit the present state; the message says which."""

    public = "This does not fit the present state."


class NeedsRestart(Conflict):
    """A setting that is read at the start only cannot be set while Maestro runs; the message says where it is."""

    public = "This setting needs a restart."


class Forbidden(MaestroError):
    """The caller may not do this."""

    public = "Not allowed."


class Suspension(MaestroError):
    """A step cannot go on before something happens outside: the job gives its place back and waits.

    ``wake_at`` is when it goes on by itself, None when only the event itself wakes it. It is no failure.
    """

    public = "The job waits."
    reason = WaitReason.PERSON
    wake_at: datetime | None = None


class WaitsForPerson(Suspension):
    """A question or an approval is open (docs/decisions.md: questions)."""

    public = "The job waits for a person's answer."


class Stopped(MaestroError):
    """A person stopped the job (docs/decisions.md: control words)."""

    public = "Stopped by a person."


class Quarantined(MaestroError):
    """The job crashed its process too often in one step (docs/decisions.md: retry)."""

    public = "Quarantined: one step crashed its process too often."


class NoAgent(MaestroError):
    """The agent of this job is gone or not active."""

    public = "The agent of this job is not active."


class StepTaken(MaestroError):
    """Another attempt of the same step finished first; a repeat finds its result."""

    public = "Another attempt finished this step first."
    retryable = True


class LaneTaken(MaestroError):
    """Another job of the lane runs: one that was started beside it begins when the lane is free."""

    public = "Another job of this lane runs."
    retryable = True


class Undelivered(MaestroError):
    """The platform took a message and could not bring it to its receiver."""

    public = "The platform could not deliver the message."


class JobEnded(MaestroError):
    """The job ended while one of its steps was still under way; the step must not act any more."""

    public = "The job has ended already."


class Unauthorized(MaestroError):
    """The credentials are missing or wrong; ``challenge`` asks the client for others, as HTTP does."""

    public = "Not authenticated."

    def __init__(self, message: str, *, challenge: str = "") -> None:
        super().__init__(message)
        self.challenge = challenge
