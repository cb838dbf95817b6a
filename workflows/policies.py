"""How long each kind of step may take and who retries it: names for every timeout and retry in the workflows."""

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

# The activity itself decides whether and when it is tried again (temporal/journal.py): an error it reports carries
# its own delay or says that it is final. What is left for this policy are crashes, which are retried after a second.
RETRY_AFTER_CRASH = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.0)

LOCAL_STEP = timedelta(seconds=30)
"""A local step is a transaction; longer than this and its thread hangs."""

LOCAL_RETRY_IN_HISTORY = timedelta(milliseconds=1)
"""Every failed attempt at a local step becomes a marker that people see in the Temporal Web UI, and its wait a timer.

Zero would mean the SDK's default: repeats inside one long workflow task that leave no trace.
"""

DELIVERY = timedelta(minutes=10)
"""All chunks of one message, waiting for the channel's outbound lane included; the heartbeat notices a dead process."""

NOTICE = timedelta(minutes=2)
"""A failure notice is a courtesy: a platform that is away must not hold up the lane for it."""

MEDIA = timedelta(minutes=5)
"""Fetching all files of one message; more would be a platform that dribbles."""

VOICE = timedelta(minutes=2)
"""All attempts at the voices of one message; what is heard by then is kept, and the answer does without the rest."""

COMPACTION = timedelta(minutes=1)
"""All attempts at a compaction: the answer does without it, so a person must not wait long for a provider that fails.

What it has bought by then is kept, and the compaction of the next message goes on from there.
"""

REQUESTS_PER_CALL = 3
"""How long one model call may take in requests: one account may time out, another answer slowly, and both may wait."""

SLACK = timedelta(seconds=30)
"""What an activity may take beyond the deadline it keeps itself."""

WAIT_FOR_CLEANUP = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
