"""Where browsers reach the dashboard."""

import pytest

from maestro.settings import Settings
from maestro.settings.addresses import dashboard_url


@pytest.mark.parametrize(
    ("webui", "url"),
    [
        ({}, "http://localhost:8080"),
        ({"host": "::1", "port": 9000}, "http://[::1]:9000"),
        ({"host": "0.0.0.0", "password": "p"}, "http://localhost:8080"),
        ({"publicUrl": "https://maestro.example/ops/"}, "https://maestro.example/ops"),
        ({"enabled": False, "publicUrl": "https://maestro.example"}, ""),
    ],
)
def test_links_lead_to_an_address_that_a_browser_can_open(webui: dict[str, object], url: str) -> None:
    assert dashboard_url(Settings.model_validate({"webui": webui})) == url
