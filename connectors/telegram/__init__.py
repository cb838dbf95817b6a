"""The Telegram package; only its options are imported until a bot is connected."""
