"""The posts of #maestro: the session is added and filtered here, and nowhere else (specification 002, 9)."""

from maestro.store.chat_sessions import ChatSessions


class Chat(ChatSessions):
    """Posts, cursors and reminders."""
