"""A local WhatsApp for tests: Meta's Graph API for one business, and its signed webhooks, with the faults of a bad day.

In a test, on the test's own event loop::

    async with WhatsAppServer.running() as whatsapp:
        ...  # point connectors.whatsapp.baseUrl at whatsapp.base_url
        whatsapp.callback_url = "http://127.0.0.1:5070/platforms/whatsapp/default"
        said = whatsapp.say(ADA, "hello")               # its id; Meta posts it until it is acknowledged
        (answer,) = await whatsapp.posts(ADA)           # what the number has sent, once there is so much of it
        whatsapp.fail("messages", Fault.cut_after())
"""

from tests.support.whatsapp_server.business import (
    ACCESS_TOKEN,
    APP_SECRET,
    NUMBER_ID,
    SECOND_NUMBER_ID,
    TEMPLATE,
    VERIFY_TOKEN,
)
from tests.support.whatsapp_server.faults import Fault
from tests.support.whatsapp_server.posting import Posting, signature
from tests.support.whatsapp_server.server import WhatsAppServer

__all__ = [
    "ACCESS_TOKEN",
    "APP_SECRET",
    "NUMBER_ID",
    "SECOND_NUMBER_ID",
    "TEMPLATE",
    "VERIFY_TOKEN",
    "Fault",
    "Posting",
    "WhatsAppServer",
    "signature",
]
