"""An owner is named while Maestro runs, and the next message counts as theirs.

See docs/decisions.md: priorities, access.
"""

import asyncio
from pathlib import Path

from maestro.domain.precedence import Priority
from tests.support.command import Ended, maestro
from tests.support.instance import Instance, running_instance
from tests.support.web_client import web_client

KEY = "a-key-that-only-programs-know"
ANNOUNCEMENTS = "announcements"
BOUND = {"platform": "web", "channel": ANNOUNCEMENTS, "agent": "conductor", "permissions": "read_only"}


async def owner(instance: Instance, *arguments: str) -> Ended:
    """Use the command beside the running Maestro."""
    return await maestro("owner", *arguments, "--config", str(instance.config_file), folder=instance.data_dir.parent)


async def test_who_becomes_an_owner_beside_a_running_maestro_may_talk_at_once(tmp_path: Path) -> None:
    async with running_instance(tmp_path, web={"apiKey": KEY}, channels=[BOUND]) as instance:
        port = instance.loaded.settings.web.port
        async with web_client(port, apiKey=KEY, channelId=ANNOUNCEMENTS) as somebody:
            await somebody.say("may I?", "first")
            (dropped,) = await instance.ended(ANNOUNCEMENTS, "dropped")
            assert "read_only" in dropped["reason"]

            added = await owner(instance, "add", f"web:{somebody.user}")
            assert (added.code, added.errors) == (0, "")
            assert await somebody.ask("and now?", "second", patience=60)
            (answered,) = await instance.ended(ANNOUNCEMENTS, "completed")
            assert (dropped["priority"], answered["priority"]) == (Priority.MESSAGE, Priority.OWNER)

            assert (await owner(instance, "remove", f"web:{somebody.user}")).code == 0
            await somebody.say("and still?", "third")
            await instance.ended(ANNOUNCEMENTS, "dropped", count=2)


async def test_owners_survive_a_restart_and_are_on_record(tmp_path: Path) -> None:
    async with running_instance(tmp_path) as instance:
        await asyncio.gather(*(owner(instance, "add", f"discord:{number}") for number in range(3)))
        await instance.restart()
        rows = instance.query("SELECT platform || ':' || user_id AS id, added_by FROM owners ORDER BY user_id")
        assert [(row["id"], row["added_by"]) for row in rows] == [(f"discord:{n}", "operator") for n in range(3)]
        log = instance.query("SELECT actor, action, subject FROM audit_log WHERE action = 'owner.add' ORDER BY subject")
        assert [row["subject"] for row in log] == [f"discord:{number}" for number in range(3)]
        assert "discord:1" in (await owner(instance, "list")).output
