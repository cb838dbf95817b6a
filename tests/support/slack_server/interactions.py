"""What an app is sent when people use a slash command or press a button."""

from tests.support.slack_server.workspace import TEAM, Json, Workspace


def slash(workspace: Workspace, channel: str, user: str, command: str, text: str = "") -> Json:
    """Return what the app is sent for a slash command."""
    return {
        "command": command,
        "text": text,
        "channel_id": channel,
        "user_id": user,
        "user_name": user.lower(),
        "team_id": TEAM,
        "trigger_id": f"{workspace.number()}.trigger",
        "response_url": "https://hooks.slack.com/commands/nobody-asks-there",
    }


def pressed(workspace: Workspace, channel: str, user: str, message: Json, number: int = 0) -> Json:
    """Return what the app is sent when somebody presses a button of a message, counted from 0."""
    (row,) = [block for block in message["blocks"] if block["type"] == "actions"]
    return {
        "type": "block_actions",
        "team": {"id": TEAM},
        "user": {"id": user, "username": user.lower(), "name": user.lower(), "team_id": TEAM},
        "container": {"type": "message", "message_ts": message["ts"], "channel_id": channel},
        "channel": {"id": channel, "name": channel.lower()},
        "message": dict(message),
        "trigger_id": f"{workspace.number()}.trigger",
        "response_url": "https://hooks.slack.com/actions/nobody-asks-there",
        "actions": [{**row["elements"][number], "action_ts": workspace.ts()}],
    }
