"""``maestro agents``: who there is, for people and as JSON, like on the API."""

from maestro.domain.agents.agent import Agent, AgentChannel, AgentStatus
from tests.support.job_rows import MORNING, JobRows
from tests.unit.cli.conftest import Maestro


def add(rows: JobRows, slug: str, **fields: object) -> None:
    with rows.store.begin() as tx:
        agent = Agent.model_validate({"slug": slug, "name": slug, "created_at": tx.now, "updated_at": tx.now, **fields})
        agent_id = tx.agents.save_agent(agent).id or 0
        tx.agents.save_binding(
            AgentChannel(agent_id=agent_id, platform="slack", account="default", channel=slug, key_by_user=True)
        )


def test_the_list_is_a_table_by_slug(rows: JobRows, maestro: Maestro) -> None:
    add(rows, "zoe", role="coder", model="gpt-4o", status=AgentStatus.PAUSED, description="writes\x1b[2J code")
    ran = maestro("agents", "list")
    assert ran.code == 0
    head, ada, zoe = ran.out.splitlines()
    assert head.split() == ["SLUG", "NAME", "ROLE", "STATUS", "VERSION", "EDITED", "MODEL", "DESCRIPTION"]
    edited = f"{MORNING.astimezone():%Y-%m-%d %H:%M:%S}".split()
    assert ada.split() == ["ada", "Ada", "assistant", "active", "1", *edited, "-", "-"]
    assert zoe.split() == ["zoe", "zoe", "coder", "paused", "1", *edited, "gpt-4o", "writes", "[2J", "code"]


def test_a_long_list_goes_on_where_it_ended(rows: JobRows, maestro: Maestro) -> None:
    add(rows, "zoe")
    page = maestro("agents", "list", "--limit", "1", "--json").json
    assert ([agent["slug"] for agent in page["items"]], page["next"]) == (["ada"], "ada")
    assert "--cursor ada" in maestro("agents", "list", "--limit", "1").out
    rest = maestro("agents", "list", "--cursor", "ada", "--json").json
    assert ([agent["slug"] for agent in rest["items"]], rest["next"]) == (["zoe"], None)
    assert maestro("agents", "list", "--cursor", "zoe").out == "There are no agents.\n"


def test_show_tells_instructions_and_channels(rows: JobRows, maestro: Maestro) -> None:
    add(rows, "zoe", system_prompt="Be kind.\n\n  Be\x07 brief.", description="the newest")
    ran = maestro("agents", "show", "zoe")
    assert ran.code == 0
    for words in ("zoe  active", "that of the account", "the newest", "slack", "KEY BY USER", "  Be kind.\n"):
        assert words in ran.out
    assert "\x07" not in ran.out
    ada = maestro("agents", "show", "ada", "--json").json
    assert (ada["slug"], ada["version"], ada["systemPrompt"], ada["tools"]) == ("ada", 1, "Be brief.", None)
    assert [(one["platform"], one["channel"], one["keyByUser"]) for one in ada["channels"]] == [("web", "code", False)]


def test_an_agent_that_does_not_exist_is_one_line(maestro: Maestro) -> None:
    for options in ((), ("--json",)):
        ran = maestro("agents", "show", "nobody", *options)
        assert (ran.code, ran.out, ran.err) == (1, "", "maestro: there is no agent 'nobody'\n")
