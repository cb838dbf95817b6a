"""Telegram: nothing here is imported before a bot is connected, but what can be set of one."""
