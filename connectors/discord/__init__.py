"""The Discord package; only the platform's options are imported until a bot is connected."""
