"""``maestro audit``: who did what, for people and as JSON, like on the API."""

from maestro.store.users.audit import set_origin
from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro


def note(rows: JobRows) -> None:
    """Note three entries, the second of them over a network."""
    with rows.store.begin() as tx:
        tx.system.audit.add_entry("operator", "owner.add", "web:1")
    rows.clock.go(minutes=1)
    with set_origin("203.0.113.9"), rows.store.begin() as tx:
        tx.system.audit.add_entry("unknown", "login.failed")
    rows.clock.go(minutes=1)
    with rows.store.begin() as tx:
        tx.system.audit.add_entry("maestro", "job.resumed", "message-1", "its run\nis gone")


def test_the_newest_comes_first(rows: JobRows, maestro: Maestro) -> None:
    note(rows)
    assert maestro("audit").out.splitlines() == [
        "AT                   WHO       DID           TO         DETAIL           FROM",
        "2026-11-20 08:02:00  maestro   job.resumed   message-1  its run is gone  -",
        "2026-11-20 08:01:00  unknown   login.failed  -          -                203.0.113.9",
        "2026-11-20 08:00:00  operator  owner.add     web:1      -                -",
    ]


def test_it_is_filtered(rows: JobRows, maestro: Maestro) -> None:
    note(rows)

    def ids(*options: str) -> list[int]:
        return [entry["id"] for entry in maestro("audit", *options, "--json").json["items"]]

    assert ids("--actor", "operator") == [1]
    assert ids("--action", "login.failed") == [2]
    assert ids("--subject", "message-1") == [3]
    assert ids("--search", "GONE") == [3]
    assert ids("--since", "2026-11-20T08:01") == [3, 2]
    assert ids("--until", "2026-11-20T08:01:00") == [1]
    assert ids("--until", "2026-11-20") == []


def test_a_long_list_goes_on_where_it_ended(rows: JobRows, maestro: Maestro) -> None:
    note(rows)
    page = maestro("audit", "--limit", "2", "--json").json
    assert [entry["id"] for entry in page["items"]] == [3, 2]
    assert f"--cursor {page['next']}" in maestro("audit", "--limit", "2").out
    rest = maestro("audit", "--cursor", page["next"], "--json").json
    assert ([entry["id"] for entry in rest["items"]], rest["next"]) == ([1], None)


def test_what_makes_no_sense_is_wrong_usage(rows: JobRows, maestro: Maestro) -> None:
    del rows
    assert maestro("audit", "--cursor", "nonsense").code == 2
    assert maestro("audit", "--since", "yesterday").code == 2
    assert maestro("audit").out == "No entry matches.\n"
