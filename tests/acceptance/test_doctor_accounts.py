"""``maestro doctor`` on accounts that the store knows, and on subscriptions: who is not asked at present, and why."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from maestro.domain.llm.accounts import AccountSource, AccountStatus, ModelAccount
from maestro.installation.data_folder import open_keys
from maestro.settings import Settings
from maestro.store.store import Store
from tests.acceptance.test_doctor import KEY, account, configure
from tests.support.diagnosed import doctor
from tests.support.fresh_store import fresh_store
from tests.support.ports import free_ports
from tests.support.provider import provider


async def test_the_command_of_a_subscription_must_be_there(tmp_path: Path) -> None:
    login = tmp_path / "login"
    configure(tmp_path, llm={"accounts": [{"name": "max", "type": "cli", "homeDir": str(login)}]})
    (await doctor(tmp_path, environment={"PATH": "/nowhere"})).is_broken("account max", "the command claude", "Install")
    claude = tmp_path / "bin" / "claude"
    claude.parent.mkdir()
    claude.touch(mode=0o755)
    found = {"PATH": f"{claude.parent}:{os.environ['PATH']}"}
    (await doctor(tmp_path, environment=found)).is_broken("account max", "no folder", "CLAUDE_CONFIG_DIR", "homeDir")
    login.mkdir()
    report = await doctor(tmp_path, environment=found)
    report.is_fine()
    assert f"through {claude}" in report.of("account max").found


async def test_accounts_that_are_not_asked_at_present_are_named(tmp_path: Path) -> None:
    with provider(body={"data": []}) as openai:
        configure(tmp_path, llm=account(apiKey=KEY, baseUrl=openai.url))
        mine = row("mine", secret="env:MY_KEY", base_url=openai.url)
        store = stored(tmp_path, row("main", AccountSource.CONFIGURATION), mine)
        with store.begin() as tx:
            tx.llm.accounts.disable_refused(tx.llm.accounts.get_account("main"))
            until = tx.llm.accounts.cool_down("mine", "m", timedelta(hours=1), [timedelta(minutes=1)])
        report = await doctor(tmp_path, environment={"MY_KEY": KEY})
        report.is_fine()
        assert "not known" in report.of("model openai/m").found
        assert '{"llm": {"models": [{"name": "m", "window": TOKENS}]}}' in report.of("model openai/m").fix
        assert "disabled after AuthenticationFailed" in report.all_of("account main")[1].found
        assert "maestro accounts enable main" in report.all_of("account main")[1].fix
        assert f"in cool-down until {until:%Y-%m-%d %H:%M:%S} UTC" in report.all_of("account mine")[1].found
        with store.begin() as tx:
            tx.llm.accounts.change_account("mine", {"status": AccountStatus.DISABLED})
        (await doctor(tmp_path, environment={"MY_KEY": KEY})).is_broken("accounts", "every account", "enable NAME")
        store.close()


async def test_an_account_of_the_api_is_asked_with_its_own_key(tmp_path: Path) -> None:
    with provider(401, {"error": "no"}) as refusing:
        configure(tmp_path)
        settings = Settings.model_validate({"dataDir": tmp_path / "data"})
        (tmp_path / "data").mkdir()
        kept = open_keys(settings, {}).stored_form(KEY)
        stored(tmp_path, row("mine", secret=kept.secret, base_url=refusing.url)).close()
        report = await doctor(tmp_path)
        report.is_broken("account mine", "expired or wrong", "maestro accounts")
        assert refusing.asked[0][2]["authorization"] == f"Bearer {KEY}"
        (tmp_path / "data" / "secrets.key").unlink()
        report = await doctor(tmp_path)
    report.is_broken("account mine", "another secrets.key", "enter the key again")
    assert KEY not in report.text
    assert not (tmp_path / "data" / "secrets.key").exists(), "nothing is made by looking"


def row(name: str, source: AccountSource = AccountSource.API, secret: str = "", base_url: str = "") -> ModelAccount:
    """An account in the store."""
    now = datetime.now(UTC)
    return ModelAccount(
        name=name,
        provider="openai",
        model="m",
        base_url=base_url or f"http://127.0.0.1:{free_ports(1)[0]}",
        source=source,
        secret=secret,
        created_at=now,
        updated_at=now,
    )


def stored(folder: Path, *rows: ModelAccount) -> Store:
    """Return a store that knows these accounts."""
    (folder / "data").mkdir(exist_ok=True)
    store = fresh_store(folder / "data" / "maestro.db")
    with store.begin() as tx:
        for one in rows:
            tx.llm.accounts.add_account(one)
    return store
