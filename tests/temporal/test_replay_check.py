"""``maestro replay-check``: a release is refused that cannot continue the workflows of the running one."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import WorkflowFailureError

from maestro.domain.errors import TemporalUnavailable
from maestro.settings.addresses import temporal_endpoint
from temporal.endpoint import Endpoint
from temporal.engine import WORKFLOW_TYPES
from temporal.histories import ClusterHistories
from temporal.replay_check import ReplayCheck, ReplayReport
from tests.histories.changed import CHANGED
from tests.histories.record import FOLDER
from tests.support.command import maestro as run_command
from tests.support.forking import Ended
from tests.support.instance import Instance, running_instance
from tests.support.ports import free_port
from tests.support.temporal_gate import key_gate, tls_gate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("replay-check")]

BROKEN_RELEASE = """
import sys
from maestro.cli import main, replay_check
from tests.histories.changed import CHANGED
replay_check.WORKFLOW_TYPES = CHANGED
sys.exit(main.run(sys.argv[1:]))
"""
"""The command of a release whose flow has a timer more."""
PROJECT = FOLDER.parents[1]
ANSWERED = 10
"""More than are read from the cluster at the same time."""


def unexpected(ended: Ended) -> list[str]:
    """Return the lines on standard error that do not tell the progress, which a slow machine gets to see."""
    return [line for line in ended.errors.splitlines() if not line.startswith("Replayed ")]


@dataclass
class Production:
    """A running Maestro with workflows that have ended, one that is open, and a folder for the command."""

    maestro: Instance
    folder: Path

    async def check(self, *arguments: str) -> Ended:
        """Run the command with the settings of the running Maestro."""
        given = ("replay-check", f"--config={self.maestro.config_file}", *arguments)
        return await run_command(*given, folder=self.folder)

    async def report(self, *arguments: str) -> dict[str, Any]:
        """Run the command and return its report."""
        ended = await self.check("--json", *arguments)
        assert unexpected(ended) == []
        report: dict[str, Any] = json.loads(ended.output)
        assert ended.code == (0 if report["ok"] else 1)
        return report

    async def judge(self, workflows: Sequence[type], since: datetime) -> ReplayReport:
        """Check other workflows than those of this release."""
        endpoint = temporal_endpoint(self.maestro.loaded.settings)
        histories = await ClusterHistories.connect(endpoint, "maestro", since)
        return await ReplayCheck(workflows).replay(histories.read())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def production(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Production]:
    folder = tmp_path_factory.mktemp("production")
    async with running_instance(folder) as maestro:
        maestro.llm.script("in open", delay=600)
        async with maestro.client("open") as client:
            await client.say("in open")
            await maestro.asked("in open")
        async with maestro.client("closed") as client:
            for number in range(ANSWERED):
                await client.say(f"message {number}")
            await maestro.ended("closed", "completed", ANSWERED)
        temporal = await maestro.temporal()
        for started in maestro.jobs("closed"):
            await temporal.get_workflow_handle(str(started["id"])).result()
        yield Production(maestro, tmp_path_factory.mktemp("elsewhere"))
        maestro.llm.script("in open")
        async with maestro.client("open") as client:
            await client.say("/stop")
            await maestro.ended("open", "cancelled")


def broken_release(*arguments: str, folder: Path) -> Ended:
    """Run the command of a release with a broken workflow."""
    ran = subprocess.run(
        [sys.executable, "-c", BROKEN_RELEASE, "replay-check", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(PROJECT), "HOME": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ended(ran.returncode, ran.stdout, ran.stderr)


# A cluster


async def test_this_release_can_continue_what_runs(production: Production) -> None:
    report = await production.report()
    assert report["ok"] is True
    assert report["replayed"]["MessageWorkflow"] == ANSWERED + 1
    assert report["openWorkflows"] == 1


async def test_a_broken_release_is_refused_and_its_command_is_named(production: Production) -> None:
    config = f"--config={production.maestro.config_file}"
    ended = await asyncio.to_thread(broken_release, config, folder=production.folder)
    assert (ended.code, unexpected(ended)) == (1, [])
    job = str(production.maestro.jobs("open")[0]["id"])
    assert f"BROKEN MessageWorkflow {job} (run " in ended.output
    assert "event 5: the history has LocalActivity prepare (1)" in ended.output
    assert "this code makes StartTimer (1 s)" in ended.output
    assert f"{ANSWERED + 1} of {ANSWERED + 1} cannot go on with this code." in ended.output
    written = await asyncio.to_thread(broken_release, config, "--json", folder=production.folder)
    report = json.loads(written.output)
    broken = {one["workflowId"]: one for one in report["broken"]}
    assert broken[job] == {
        "source": "",
        "workflowId": job,
        "runId": broken[job]["runId"],
        "workflowType": "MessageWorkflow",
        "isOpen": True,
        "eventId": 5,
        "expected": "LocalActivity prepare (1)",
        "made": "StartTimer (1 s)",
        "reason": broken[job]["reason"],
    }


async def test_open_workflows_count_however_old_they_are(production: Production) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    report = await production.judge(CHANGED, later)
    assert [broken.workflow_id for broken in report.broken] == [production.maestro.jobs("open")[0]["id"]]
    assert (await production.judge(WORKFLOW_TYPES, later)).ok


async def test_histories_are_saved_and_checked_again_without_the_cluster(
    production: Production, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    report = await production.report("--since=1d", f"--save={saved}")
    assert len(list(saved.iterdir())) == ANSWERED + 1
    again = await production.report(str(saved))
    assert again == {**report, "openWorkflows": 1}


async def test_a_workflow_of_another_release_that_failed_this_way_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_instance(tmp_path) as maestro:
        maestro.llm.script("caught", delay=600, times=1)
        async with maestro.client("updated") as client:
            await client.say("caught by an update")
            await maestro.asked("caught")
        monkeypatch.setattr("temporal.engine.WORKFLOW_TYPES", CHANGED)
        await maestro.restart()
        monkeypatch.undo()
        [job] = await maestro.ended("updated", "completed")
        temporal = await maestro.temporal()
        first = [run async for run in temporal.list_workflows("ExecutionStatus = 'Failed'")]
        with pytest.raises(WorkflowFailureError):
            await temporal.get_workflow_handle(str(job["id"]), run_id=first[0].run_id).result()
        at = datetime.now(UTC) - timedelta(hours=1)
        histories = await ClusterHistories.connect(temporal_endpoint(maestro.loaded.settings), "maestro", at)
        report = await ReplayCheck(CHANGED).replay(histories.read())
    assert (report.ok, report.failed_before, report.replayed) == (True, 1, {"MessageWorkflow": 1})


async def test_temporal_that_is_away_is_one_line(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    ended = await run_command("replay-check", folder=tmp_path, environment={"MAESTRO_TEMPORAL_ADDRESS": nowhere})
    assert (ended.code, ended.output) == (1, "")
    assert ended.errors.startswith(f"maestro: Nothing listens at {nowhere}")
    with pytest.raises(TemporalUnavailable):
        await ClusterHistories.connect(Endpoint(nowhere, "default"), "maestro", datetime.now(UTC))


async def test_tls_and_the_namespace_come_from_the_configuration(production: Production, tmp_path: Path) -> None:
    endpoint = temporal_endpoint(production.maestro.loaded.settings)
    async with tls_gate(int(endpoint.address.rpartition(":")[2]), client_auth=True) as gate:
        for name, text in (("ca", gate.ca_pem), ("cert", gate.client_cert_pem), ("key", gate.client_key_pem)):
            (tmp_path / f"{name}.pem").write_text(text)
        files = {"tlsCa": "file:ca.pem", "tlsCert": "file:cert.pem", "tlsKey": "file:key.pem"}
        temporal = {"address": gate.address, "tls": True, **files}
        (tmp_path / "maestro.json").write_text(json.dumps({"temporal": temporal}))
        ended = await run_command("replay-check", "--json", folder=tmp_path)
        other = await run_command(
            "replay-check", folder=tmp_path, environment={"MAESTRO_TEMPORAL_NAMESPACE": "nowhere"}
        )
    assert json.loads(ended.output)["replayed"]["MessageWorkflow"] == ANSWERED + 1
    assert other.code == 1
    assert "has no namespace 'nowhere'" in other.errors


async def test_a_refused_api_key_is_told(production: Production, tmp_path: Path) -> None:
    endpoint = temporal_endpoint(production.maestro.loaded.settings)
    async with key_gate(int(endpoint.address.rpartition(":")[2]), key="the-right-key") as gate:
        environment = {"MAESTRO_TEMPORAL_ADDRESS": gate.address, "MAESTRO_TEMPORAL_API_KEY": "the-right-key"}
        right = await run_command("replay-check", folder=tmp_path, environment=environment)
        wrong = await run_command(
            "replay-check", folder=tmp_path, environment={**environment, "MAESTRO_TEMPORAL_API_KEY": "another"}
        )
    assert right.code == 0, right.errors
    assert (wrong.code, wrong.output) == (1, "")
    assert "temporal.apiKey" in wrong.errors


# Files


async def test_files_need_no_cluster_and_no_store(tmp_path: Path) -> None:
    ended = await run_command("replay-check", str(FOLDER), folder=tmp_path)
    assert (ended.code, unexpected(ended)) == (0, [])
    assert ended.output.endswith("All of them go on with this code.\n")
    assert not any(await asyncio.to_thread(lambda: list(tmp_path.iterdir())))


async def test_a_file_of_a_broken_workflow_is_named(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "answered.json", tmp_path)
    ended = await asyncio.to_thread(broken_release, "answered.json", folder=tmp_path)
    assert (ended.code, unexpected(ended)) == (1, [])
    assert "file: answered.json" in ended.output


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["gone.json"], 1, "gone.json does not exist; name a file with a history"),
        (["."], 1, "has no *.json file"),
        ([str(FOLDER), "--since=24h"], 2, "leave them out"),
        (["--since=yesterday"], 2, "expected a time"),
        (["--since=99999w"], 2, "expected a time"),
    ],
)
async def test_wrong_usage_is_explained(arguments: list[str], code: int, says: str, tmp_path: Path) -> None:
    ended = await run_command("replay-check", *arguments, folder=tmp_path)
    assert (ended.code, ended.output) == (code, "")
    assert says in ended.errors
