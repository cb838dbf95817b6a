"""``/metrics`` of the API: Prometheus' text format, behind the password."""

from maestro.domain.health import METRICS_TYPE
from tests.support.api_client import BASIC, FixedHealth, app_of, client
from tests.support.job_rows import JobRows
from tests.support.scraping import Scrape

COLLECTOR = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""What Prometheus says that it takes."""


async def test_a_collector_with_the_password_gets_them(rows: JobRows) -> None:
    app = app_of(rows, health=FixedHealth(store="ok", temporal="away"))
    rows.failed()
    async with client(app, auth=BASIC, headers={"Accept": COLLECTOR}) as http:
        answer = await http.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, METRICS_TYPE)
    found = Scrape(answer.text)
    assert found.value("maestro_jobs_ended_total", status="failed") == 1
    assert found.value("maestro_check_ok", check="temporal") == 0


async def test_a_collector_without_it_is_asked_for_it(rows: JobRows) -> None:
    async with client(app_of(rows), headers={"Accept": COLLECTOR}) as http:
        answer = await http.get("/metrics")
    assert answer.status_code == 401
    assert "www-authenticate" in answer.headers
    assert "maestro_" not in answer.text
