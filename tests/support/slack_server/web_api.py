"""The methods of the Web API: arguments in, the members of the answer out."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.slack_server.workspace import BOT_ID, BOT_USER, TEAM, Json, SlackFile, Workspace

Arguments = Mapping[str, Any]
LONGEST_TEXT = 40_000


class SlackError(Exception):
    """What Slack answers with ``ok: false``."""


class WebApi:
    """The methods that a bot may call; ``posted`` is called with each message that it writes."""

    def __init__(self, workspace: Workspace, url: Callable[[str], str], posted: Callable[[str, Json], None]) -> None:
        """``url`` makes an address of the server from a path."""
        self._workspace = workspace
        self._url = url
        self._posted = posted
        self.statuses: list[Json] = []
        """What ``assistant.threads.setStatus`` was called with."""
        self.whispers: list[Json] = []
        """What was said to one person alone."""

    def call(self, method: str, arguments: Arguments) -> Json:
        """Do it; raises ``SlackError``."""
        found = getattr(self, "_" + method.replace(".", "_"), None)
        if found is None:
            raise SlackError("unknown_method")
        answer: Json = found(arguments)
        return answer

    def _auth_test(self, _: Arguments) -> Json:
        return {"team_id": TEAM, "user_id": BOT_USER, "bot_id": BOT_ID, "user": "maestro", "team": "Local", "url": ""}

    def _apps_connections_open(self, _: Arguments) -> Json:
        return {"url": self._url(f"/link/?ticket=ticket-{self._workspace.number()}").replace("http", "ws", 1)}

    def _chat_postMessage(self, asked: Arguments) -> Json:  # noqa: N802 - Slack's name
        text = str(asked.get("text", ""))
        if not text:
            raise SlackError("no_text")
        if len(text) > LONGEST_TEXT:
            raise SlackError("msg_too_long")
        extra = {
            name: asked[name]
            for name in ("thread_ts", "metadata", "blocks", "unfurl_links", "unfurl_media", "parse")
            if name in asked
        }
        message = self._workspace.by_bot(asked["channel"], text, **extra)
        self._posted(asked["channel"], message)
        return {"channel": asked["channel"], "ts": message["ts"], "message": message}

    def _chat_update(self, asked: Arguments) -> Json:
        """Change a message of the app; without a field, what it had stays."""
        message = self._workspace.find(asked["channel"], str(asked["ts"]))
        if message is None:
            raise SlackError("message_not_found")
        if message.get("bot_id") != BOT_ID:
            raise SlackError("cant_update_message")
        message |= {name: asked[name] for name in ("text", "blocks", "metadata") if name in asked}
        return {"channel": asked["channel"], "ts": message["ts"], "text": message["text"], "message": message}

    def _chat_postEphemeral(self, asked: Arguments) -> Json:  # noqa: N802 - Slack's name
        self.whispers.append(dict(asked))
        return {"message_ts": self._workspace.ts()}

    def _reactions_add(self, asked: Arguments) -> Json:
        message = self._workspace.find(asked["channel"], str(asked["timestamp"]))
        if message is None:
            raise SlackError("message_not_found")
        reactions: list[str] = message.setdefault("reactions", [])
        if asked["name"] in reactions:
            raise SlackError("already_reacted")
        reactions.append(asked["name"])
        return {}

    def _conversations_history(self, asked: Arguments) -> Json:
        return self._page(self._workspace.history(asked["channel"]), asked)

    def _conversations_replies(self, asked: Arguments) -> Json:
        thread = self._workspace.replies(asked["channel"], asked["ts"])
        if not thread:
            raise SlackError("thread_not_found")
        return self._page(thread, asked, always=thread[:1])

    def _page(self, found: list[Json], asked: Arguments, always: list[Json] | None = None) -> Json:
        oldest, latest = float(asked.get("oldest") or 0), float(asked.get("latest") or "inf")
        within = [one for one in found if one in (always or []) or oldest < float(one["ts"]) < latest]
        start, limit = int(asked.get("cursor") or 0), int(asked.get("limit") or 100)
        page = within[start : start + limit]
        if str(asked.get("include_all_metadata", "")).lower() not in ("1", "true"):
            page = [{name: value for name, value in one.items() if name != "metadata"} for one in page]
        more = start + limit < len(within)
        return {
            "messages": page,
            "has_more": more,
            "response_metadata": {"next_cursor": str(start + limit) if more else ""},
        }

    def _conversations_info(self, asked: Arguments) -> Json:
        channel = asked["channel"]
        return {"channel": {"id": channel, "name": channel.lower(), "is_im": channel.startswith("D")}}

    def _users_info(self, asked: Arguments) -> Json:
        if asked["user"] not in self._workspace.users:
            raise SlackError("user_not_found")
        return {"user": self._workspace.users[asked["user"]]}

    def _files_info(self, asked: Arguments) -> Json:
        if asked["file"] not in self._workspace.files:
            raise SlackError("file_not_found")
        return {"file": self._workspace.files[asked["file"]].described()}

    def _files_getUploadURLExternal(self, asked: Arguments) -> Json:  # noqa: N802 - Slack's name
        file_id = f"F{self._workspace.number():08d}"
        url = self._url(f"/files-pri/{file_id}")
        self._workspace.files[file_id] = SlackFile(file_id, str(asked["filename"]), b"", "text/plain", url)
        return {"file_id": file_id, "upload_url": self._url(f"/upload/v1/{file_id}")}

    def _files_completeUploadExternal(self, asked: Arguments) -> Json:  # noqa: N802 - Slack's name
        files = [self._workspace.files[one["id"]].described() for one in json.loads(asked["files"])]
        if asked.get("channel_id"):
            extra = {"thread_ts": asked["thread_ts"]} if asked.get("thread_ts") else {}
            text = str(asked.get("initial_comment") or "")
            message = self._workspace.by_bot(asked["channel_id"], text, files=files, subtype="file_share", **extra)
            self._posted(asked["channel_id"], message)
        return {"files": [{"id": one["id"], "title": one["title"]} for one in files]}

    def _assistant_threads_setStatus(self, asked: Arguments) -> Json:  # noqa: N802 - Slack's name
        self.statuses.append(dict(asked))
        return {}
