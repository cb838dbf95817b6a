"""The Telegram package. Only its options are imported until a bot is connected."""
