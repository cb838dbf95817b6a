"""Accounts that come and go beside a running Maestro, whose next call they answer (docs/decisions.md: demo model)."""

from pathlib import Path

from maestro.domain.jobs.job import FAILURE_NOTICE
from tests.support.command import Ended, maestro
from tests.support.instance import Instance, running_instance
from tests.support.llm_script import Failure

KEY = "sk-KEY-SECRET-23-abcd"
OTHER_KEY = "sk-KEY-SECRET-42-wxyz"


async def accounts(instance: Instance, *arguments: str, key: str | None = None) -> Ended:
    """Use the command beside the running Maestro; a key comes through a pipe."""
    folder = instance.data_dir.parent
    ran = await maestro("accounts", *arguments, "--config", str(instance.config_file), folder=folder, piped=key)
    assert "SECRET" not in ran.output + ran.errors
    return ran


async def test_an_account_that_is_added_answers_the_next_message_and_no_longer_when_it_is_gone(tmp_path: Path) -> None:
    async with running_instance(tmp_path, start=False) as instance:
        await instance.restart(llm={"accounts": []})
        mine = ("mine", "--provider", "openai", "--base-url", instance.llm.base_url("openai"))
        async with instance.client("general") as grace:
            assert "demo" in (await grace.ask("first", "1")).lower()
            assert (await accounts(instance, "add", *mine, key=f"{KEY}\n")).code == 0
            assert await grace.ask("second", "2") == "answer to: second"
            assert [request.key for request in instance.llm.requests] == [KEY]

            assert (await accounts(instance, "remove", "mine")).code == 0
            assert "demo" in (await grace.ask("third", "3")).lower()
        assert KEY.encode() not in b"".join(path.read_bytes() for path in instance.data_dir.glob("maestro.db*"))


async def test_an_account_whose_key_was_refused_answers_again_with_a_new_one(tmp_path: Path) -> None:
    async with running_instance(tmp_path, start=False) as instance:
        await instance.restart(llm={"accounts": []})
        instance.llm.script(account=KEY, failure=Failure.status(401))
        mine = ("mine", "--provider", "openai", "--base-url", instance.llm.base_url("openai"))
        await accounts(instance, "add", *mine, key=f"{KEY}\n")
        async with instance.client("general") as grace:
            assert await grace.ask("hello", "1") == FAILURE_NOTICE
            assert "AuthenticationFailed" in (await accounts(instance, "list")).output
            enabled = await accounts(instance, "enable", "mine", "--new-key", key=f"{OTHER_KEY}\n")
            assert (enabled.code, enabled.errors) == (0, "")
            assert await grace.ask("and now?", "2") == "answer to: and now?"
        assert [request.key for request in instance.llm.requests] == [KEY, OTHER_KEY]
