"""WhatsApp's entry in the list of platforms: its secrets, options and connector."""

from connectors.platforms import Platform
from connectors.whatsapp.config import ACCESS_TOKEN, APP_SECRET, PLATFORM, VERIFY_TOKEN, WhatsAppOptions, complete

platform = Platform(
    name=PLATFORM,
    secrets={
        ACCESS_TOKEN: "the token of a system user that may send messages",
        APP_SECRET: "the app's secret, with which Meta signs its requests",
        VERIFY_TOKEN: "the word that Meta says when the webhook is set up; of your own choice",
    },
    connector="connectors.whatsapp.connector:WhatsAppConnector",
    options=WhatsAppOptions,
    complete=complete,
)
