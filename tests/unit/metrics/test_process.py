"""What a collector reads: valid text, each metric explained and documented, and no word that people wrote."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.parser import text_string_to_metric_families

from maestro.domain.errors import StoreBusy
from maestro.domain.health import METRICS_TYPE, QueueSlots
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.llm.prompts import CallKey
from maestro.domain.messages import Address
from maestro.metrics.instruments import LONGEST, MOST_WORDS, LabelValues
from maestro.metrics.process import ProcessMetrics
from maestro.store.store import Store
from tests.support.job_rows import SECRET_ANSWER, JobRows
from tests.support.scraping import Scrape
from tests.unit.architecture.source import ROOT

FINE = {"store": "ok", "temporal": "ok", "worker": "ok"}
MANUAL = ROOT / "docs" / "howto" / "monitor.md"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def metrics(rows: JobRows) -> ProcessMetrics:
    return ProcessMetrics(rows.store, "up", max_pending=lambda: 500, clock=rows.clock)


def scrape(metrics: ProcessMetrics, **checks: str) -> Scrape:
    """Ask for everything."""
    return Scrape(metrics.render({**FINE, **checks}).decode())


def busy(rows: JobRows, metrics: ProcessMetrics) -> Scrape:
    """Give each metric something to say, and ask for everything."""
    job_id = rows.add("a question that only the person may read")
    rows.worked(job_id)
    rows.end(job_id, JobStatus.COMPLETED)
    rows.failed()
    with rows.store.begin() as tx:
        tx.users.record_connector_state("web", "default", "running", "port 5070")
        tx.inbox.ignored.add_ignored(Address(platform="web", channel="general"), "it is for nobody")
    metrics.count_step("call_model", "done", 0.4)
    metrics.count_retired("jobs", 1)
    metrics.list_slots = lambda: [QueueSlots("maestro-llm", "activity", 3, 400)]
    return scrape(metrics)


# The text


def test_the_text_is_valid_and_every_metric_is_explained(rows: JobRows, metrics: ProcessMetrics) -> None:
    text = busy(rows, metrics).text
    families = list(text_string_to_metric_families(text))
    assert len(families) > 25
    for family in families:
        assert family.documentation, family.name
        assert family.type != "unknown", family.name


def test_names_follow_the_conventions(rows: JobRows, metrics: ProcessMetrics) -> None:
    for name, kind in busy(rows, metrics).own.items():
        assert re.fullmatch(r"maestro(_[a-z]+)+", name), name
        assert name.endswith("_total") == (kind == "counter"), name
        assert not name.endswith(("_created", "_ms", "_count", "_sum", "_bucket")), name


def test_the_content_type_is_that_of_the_format() -> None:
    assert METRICS_TYPE == CONTENT_TYPE_PLAIN_0_0_4


def test_the_alert_rules_of_the_manual_name_metrics_that_exist(rows: JobRows, metrics: ProcessMetrics) -> None:
    found = busy(rows, metrics)
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", MANUAL.read_text(), re.DOTALL)]
    rules = [rule for block in blocks for group in block.get("groups", ()) for rule in group["rules"]]
    assert len(rules) == 8
    for rule in rules:
        named = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"maestro_\w+", rule["expr"])}
        assert named
        assert named <= found.own.keys()
        assert f"**{rule['alert']}**" in MANUAL.read_text(), "what to do"
        assert re.search(rf"^\| [^|]*\b{rule['alert']}\b.*\| `", MANUAL.read_text(), re.MULTILINE), "first command"


def test_nothing_that_people_wrote_and_no_id_is_told(rows: JobRows, metrics: ProcessMetrics) -> None:
    text = busy(rows, metrics).text
    for told in ("only the person", SECRET_ANSWER, "message-", "general", "Grace", "u-1", "m-1"):
        assert told not in text


def test_a_scrape_also_tells_what_the_process_takes(metrics: ProcessMetrics) -> None:
    found = scrape(metrics)
    assert found.value("process_resident_memory_bytes") > 0
    assert found.value("maestro_build_info", command="up") == 1
    assert "python_gc_collections_total" in found.text


# The figures


def test_a_job_of_every_kind_of_end_is_counted(rows: JobRows, metrics: ProcessMetrics) -> None:
    for status in (JobStatus.COMPLETED, JobStatus.CANCELLED, JobStatus.DROPPED, JobStatus.FAILED):
        rows.end(rows.add(), status, "Quarantined" if status is JobStatus.FAILED else "")
    found = scrape(metrics)
    for ending in ("completed", "cancelled", "dropped", "failed"):
        assert found.value("maestro_jobs_ended_total", status=ending) == 1
    assert found.value("maestro_jobs_ended_total", status="merged") == 0
    assert found.value("maestro_job_failures_total", error="Quarantined") == 1
    assert found.value("maestro_job_duration_seconds_count") == 1
    assert found.value("maestro_messages_received_total", platform="web") == 4


def test_counters_never_go_back(rows: JobRows, metrics: ProcessMetrics) -> None:
    job_id = rows.failed()
    assert scrape(metrics).value("maestro_jobs_ended_total", status="failed") == 1
    with rows.store.begin() as tx:
        tx.jobs.reopen_job(tx.jobs.get(job_id))
    found = scrape(metrics)
    assert found.value("maestro_jobs_ended_total", status="failed") == 1
    assert found.value("maestro_jobs", status="pending") == 1


def test_the_backlog_is_told_beside_its_limit_with_the_age_of_the_oldest(
    rows: JobRows, metrics: ProcessMetrics
) -> None:
    rows.add()
    rows.add(kind=JobKind.CRON)
    rows.clock.go(seconds=8)
    found = scrape(metrics)
    assert found.value("maestro_jobs", status="pending") == 2
    assert found.value("maestro_jobs_pending_limit") == 500
    assert found.value("maestro_jobs_oldest_pending_age_seconds") == 9


def test_a_clock_that_was_set_back_makes_no_negative_age(rows: JobRows, metrics: ProcessMetrics) -> None:
    rows.add()
    rows.clock.now -= timedelta(hours=1)
    assert scrape(metrics).value("maestro_jobs_oldest_pending_age_seconds") == 0


def test_calls_are_told_with_tokens_and_cost(rows: JobRows, metrics: ProcessMetrics) -> None:
    rows.worked(rows.add())
    found, model = scrape(metrics), {"provider": "anthropic", "model": "claude-haiku-4-5"}
    for outcome in ("answered", "failed", "interrupted"):
        assert found.value("maestro_llm_calls_total", outcome=outcome, **model) == 1
    assert found.value("maestro_llm_tokens_total", direction="input", **model) == 120
    assert found.value("maestro_llm_tokens_total", direction="output", **model) == 30
    assert found.value("maestro_llm_tokens_total", direction="cached", **model) == 100
    assert found.value("maestro_llm_cost_usd_total", outcome="answered", **model) == 0.0025
    assert found.value("maestro_llm_cost_usd_total", outcome="interrupted", **model) == 0.0012
    assert found.value("maestro_llm_failures_total", provider="anthropic", error="RateLimited") == 1


def test_what_was_spent_and_is_reserved_today_is_told(rows: JobRows, metrics: ProcessMetrics) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.llm.budgets.add_cost(CallKey(job_id=job_id, number=1), 0.5)
        tx.llm.budgets.reserve_cost(CallKey(job_id=job_id, number=2), tx.jobs.callers.read_payer(job_id), 0.25)
    found = scrape(metrics)
    assert found.value("maestro_budget_spent_usd") == 0.5
    assert found.value("maestro_budget_reserved_usd") == 0.25


def test_chunks_in_doubt_are_told(rows: JobRows, metrics: ProcessMetrics) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    assert scrape(metrics).value("maestro_deliveries_open") == 1
    rows.end(job_id, JobStatus.CANCELLED)
    found = scrape(metrics)
    assert found.value("maestro_deliveries_total", platform="web", state="sent") == 1
    assert found.value("maestro_deliveries_total", platform="web", state="unconfirmed") == 1
    assert found.value("maestro_deliveries_open") == 0


def test_a_connector_has_one_state(rows: JobRows, metrics: ProcessMetrics) -> None:
    for state in ("starting", "running", "failed"):
        with rows.store.begin() as tx:
            tx.users.record_connector_state("web", "default", state, "")
        found = scrape(metrics)
        assert found.value("maestro_connector_state", platform="web", account="default", state=state) == 1
    assert found.text.count("maestro_connector_state{") == 1


def test_a_check_with_a_problem_is_not_ok(metrics: ProcessMetrics) -> None:
    found = scrape(metrics, temporal="Temporal is not connected yet")
    assert found.value("maestro_check_ok", check="store") == 1
    assert found.value("maestro_check_ok", check="temporal") == 0
    assert "not connected" not in found.text


def test_steps_are_told_by_name_and_outcome(metrics: ProcessMetrics) -> None:
    metrics.count_step("call_model", "done", 7)
    metrics.count_step("call_model", "failed", 0.001)
    found = scrape(metrics)
    assert found.value("maestro_step_duration_seconds_sum", step="call_model", outcome="done") == 7
    assert found.value("maestro_step_duration_seconds_bucket", step="call_model", outcome="failed", le="0.005") == 1


def test_two_processes_in_one_interpreter_count_apart(rows: JobRows, metrics: ProcessMetrics) -> None:
    other = ProcessMetrics(rows.store, "worker", max_pending=lambda: 1, clock=rows.clock)
    other.count_step("deliver", "done", 1)
    assert 'step="deliver"' not in scrape(metrics).text
    assert scrape(other).value("maestro_build_info", command="worker") == 1


class BusyStore(Store):
    """Does not answer while it is told so."""

    busy = False

    def view(self, **options: bool):  # type: ignore[no-untyped-def]
        """Refuse, or read."""
        if self.busy:
            raise StoreBusy("the disk is full")
        return super().view(**options)


def test_while_the_store_does_not_answer_everything_else_is_told_and_nothing_is_lost(
    rows: JobRows, tmp_path: Path
) -> None:
    store = BusyStore(tmp_path / "maestro.db", rows.clock)
    metrics = ProcessMetrics(store, "up", max_pending=lambda: 1, clock=rows.clock)
    rows.failed()
    store.busy = True
    metrics.count_step("deliver", "done", 1)
    found = scrape(metrics)
    assert found.value("maestro_check_ok", check="store") == 0
    assert found.value("maestro_step_duration_seconds_count", step="deliver", outcome="done") == 1
    store.busy = False
    assert scrape(metrics).value("maestro_jobs_ended_total", status="failed") == 1


# Labels


def test_a_label_takes_only_so_many_values() -> None:
    models = LabelValues()
    first = [str(number) for number in range(MOST_WORDS)]
    assert [models.label_value(word) for word in (*first, "late", "0", "")] == [*first, "other", "0", "other"]


def test_a_value_is_neither_empty_nor_long() -> None:
    errors = LabelValues()
    assert errors.label_value("") == "unknown"
    assert len(errors.label_value("x" * 1000)) == LONGEST


def test_the_slots_of_a_queue_are_used_or_free(rows: JobRows, metrics: ProcessMetrics) -> None:
    found = busy(rows, metrics)
    slots = {"queue": "maestro-llm", "kind": "activity"}
    assert found.value("maestro_worker_slots", state="used", **slots) == 3
    assert found.value("maestro_worker_slots", state="free", **slots) == 397


def test_only_a_claimed_job_waits_for_a_worker(rows: JobRows, metrics: ProcessMetrics) -> None:
    rows.add("behind another in its lane")
    job_id = rows.add("claimed")
    rows.add(kind=JobKind.CRON)
    rows.clock.go(seconds=20)
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, claimed_at=tx.now)
    rows.clock.go(seconds=5)
    found = scrape(metrics)
    assert found.value("maestro_jobs_pending", kind="message") == 2
    assert found.value("maestro_jobs_pending", kind="cron") == 1
    assert found.value("maestro_jobs_ready", kind="message") == 1
    assert found.value("maestro_jobs_ready", kind="cron") == 0
    assert found.value("maestro_jobs_ready_age_seconds", kind="message") == 5
    assert found.value("maestro_jobs_ready_age_seconds", kind="cron") == 0
    assert found.value("maestro_jobs_pending_age_seconds", kind="message") == 27
    assert found.value("maestro_jobs_pending_age_seconds", kind="webhook") == 0
