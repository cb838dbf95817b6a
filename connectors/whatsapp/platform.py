"""WhatsApp's entry in the list of platforms: its secrets, its options and its connector."""

from connectors.platforms import Platform
from connectors.whatsapp.config import ACCESS_TOKEN, APP_SECRET, PLATFORM, VERIFY_TOKEN, WhatsAppOptions, missing_option

platform = Platform(
    name=PLATFORM,
    secrets={
        ACCESS_TOKEN: "the token of a system user that may send messages",
        APP_SECRET: "the app's secret, with which Meta signs its requests",
        VERIFY_TOKEN: "the word with which Meta verifies the webhook; choose it yourself",
    },
    connector="connectors.whatsapp.connector:WhatsAppConnector",
    options=WhatsAppOptions,
    complete=missing_option,
)
