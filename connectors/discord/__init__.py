"""Discord: before a bot is connected, only the platform's options are imported."""
