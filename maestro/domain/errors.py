"""The errors that Maestro raises; a class name is the failure type in Temporal and the ``error`` field in JSON."""

from datetime import datetime, timedelta
from enum import StrEnum


class FailureSource(StrEnum):
    """The part of the system that failed, which decides how long and how often a step is retried."""

    PROVIDER = "provider"
    PLATFORM = "platform"
    STORE = "store"
    MAESTRO = "maestro"


class WaitReason(StrEnum):
    """The event that a waiting job waits for."""

    ACCOUNT = "account"
    PROVIDER = "provider"
    BUDGET = "budget"
    PERSON = "person"


class MaestroError(Exception):
    """The base class of all errors of Maestro.

    ``public`` is a fixed sentence without user text, prompts or secrets; no other text of an error may be stored in a
    workflow history. ``str(error)`` may contain details; it appears in logs, rows and responses to the operator.
    """

    public = "Maestro could not complete the operation."
    retryable = False
    retry_after: timedelta | None = None
    source = FailureSource.MAESTRO


class ConfigurationError(MaestroError):
    """The configuration is invalid; the message names the key and the fix."""

    public = "The configuration is wrong."


class EncryptionKeyMissing(ConfigurationError):
    """A payload of Temporal is encrypted with a key that this process does not have."""

    public = "A payload of Temporal cannot be decrypted."
    retryable = True


class DataFolderBusy(MaestroError):
    """Another process owns the data folder."""

    public = "Another Maestro process uses this data folder."


class PortTaken(MaestroError):
    """Another program uses a port; the message names the port and its setting."""

    public = "A port is already in use."


class TemporalUnavailable(MaestroError):
    """The Temporal server cannot be reached or did not become healthy."""

    public = "Temporal cannot be reached."
    retryable = True


class StoreBusy(MaestroError):
    """The database could not be read or written in time, because another connection locks it or its disk is full."""

    public = "The store is busy."
    retryable = True
    source = FailureSource.STORE


class ScopeTooNarrow(MaestroError):
    """A transaction would change rows outside of its scope; ``Store.widen_scope`` repeats it without other writers."""

    public = "The store is busy."
    retryable = True
    source = FailureSource.STORE


class StoreFull(StoreBusy):
    """The database could not be written because its disk is full."""

    public = "The disk of the store is full."


class StoreDamaged(StoreBusy):
    """Pages of the database are damaged; the message says how to save the remaining data.

    Steps are retried as for a busy store, so jobs continue once a backup is restored.
    """

    public = "The database is damaged."


class MediaUnavailable(StoreBusy):
    """The object storage of media files cannot be reached or refuses access; the message names the fix.

    Steps are retried as for a busy store, so nothing that was received or sent is lost.
    """

    public = "The storage of files cannot be used."


class NewerDatabase(MaestroError):
    """A newer release has written the database; this release does not change it."""

    public = "The database was written by a newer version of Maestro."


class OlderDatabase(MaestroError):
    """An earlier release has written the database, and this process is not allowed to migrate it."""

    public = "The database was written by an older version of Maestro."


class OlderReleaseRuns(MaestroError):
    """A process of an earlier release uses what a migration would remove or change."""

    public = "A process of an earlier version of Maestro is running."


class StoreUnreadable(MaestroError):
    """The database file cannot be opened or is not a Maestro store."""

    public = "The database cannot be opened."


class Backlogged(MaestroError):
    """The inbox is full; nothing was stored, and the sender should try again later."""

    public = "Too many messages are waiting."
    retryable = True


class InvalidMessage(MaestroError):
    """An incoming message breaks a rule; the message of the error names the rule."""

    public = "The message is not valid."


class InvalidEdit(MaestroError):
    """A request to create or change something breaks a rule; the message names the field and the fix."""

    public = "The request is not valid."


class NotFound(MaestroError):
    """The requested object does not exist."""

    public = "Not found."


class Conflict(MaestroError):
    """The request does not fit the current state of its object; the message names that state."""

    public = "The request does not fit the present state of its object."


class NeedsRestart(Conflict):
    """A setting that is only read at the start cannot change at run time; the message says where it is set."""

    public = "This setting needs a restart."


class Forbidden(MaestroError):
    """The caller lacks the permission for this request."""

    public = "Not allowed."


class Suspension(MaestroError):
    """A step cannot continue before an external event: the job frees its lane and waits.

    ``wake_at`` is when the job continues at the latest, None if only the event ends the wait. A suspension is not a
    failure.
    """

    public = "The job waits."
    reason = WaitReason.PERSON
    wake_at: datetime | None = None


class WaitsForPerson(Suspension):
    """The job waits for the answer to a question or an approval (docs/decisions.md: questions)."""

    public = "The job waits for a person's answer."


class Stopped(MaestroError):
    """A user stopped the job (docs/decisions.md: control words)."""

    public = "Stopped by a person."


class Quarantined(MaestroError):
    """A step of the job crashed its process too often (docs/decisions.md: retry)."""

    public = "Quarantined: one step crashed its process too often."


class NoAgent(MaestroError):
    """The agent of this job was deleted or is not active."""

    public = "The agent of this job is not active."


class StepTaken(MaestroError):
    """Another attempt at the same step finished first; the retry returns the stored result."""

    public = "Another attempt finished this step first."
    retryable = True


class LeaseLost(MaestroError):
    """Another process may run the connector by now, so this process must not send; the retry runs in that process."""

    public = "Another process has taken over the connector."
    retryable = True
    source = FailureSource.PLATFORM


class LaneTaken(MaestroError):
    """Another job holds the lane; the retry starts the job once the lane is free."""

    public = "Another job of this lane runs."
    retryable = True


class Undelivered(MaestroError):
    """The platform accepted a message but could not deliver it to the recipient."""

    public = "The platform could not deliver the message."


class JobEnded(MaestroError):
    """The job ended while one of its steps was still running; the step must have no further effects."""

    public = "The job has ended already."


class Unauthorized(MaestroError):
    """The credentials are missing or wrong; ``challenge`` is the ``WWW-Authenticate`` header, empty for none."""

    public = "Not authenticated."

    def __init__(self, message: str, *, challenge: str = "") -> None:
        super().__init__(message)
        self.challenge = challenge
