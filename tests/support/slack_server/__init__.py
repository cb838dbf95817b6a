"""A local Slack for tests: Web API, Socket Mode and signed Events API requests, with the faults of a bad day.

In a test, on the test's own event loop::

    async with SlackServer.running() as slack:
        ...  # point connectors.slack.baseUrl at slack.api_url
        await slack.connected()
        sent = await slack.say("C1", "U1", "hello")      # its ts; every open socket gets the event
        (answer,) = await slack.posts("C1")              # what the bot has posted, once there is so much of it
        slack.fail("chat.postMessage", Fault.cut_after())
"""

from tests.support.slack_server.faults import Fault
from tests.support.slack_server.interactions import pressed, slash
from tests.support.slack_server.server import SlackServer
from tests.support.slack_server.signing import signature
from tests.support.slack_server.workspace import APP_TOKEN, BOT_TOKEN, BOT_USER, SECOND_BOT_TOKEN, SIGNING_SECRET, TEAM

__all__ = [
    "APP_TOKEN",
    "BOT_TOKEN",
    "BOT_USER",
    "SECOND_BOT_TOKEN",
    "SIGNING_SECRET",
    "TEAM",
    "Fault",
    "SlackServer",
    "pressed",
    "signature",
    "slash",
]
