"""Whatever a page can change is done once by a test in a real browser."""

from api.parts import AgentChat
from tests.support.api_client import app_of
from tests.support.job_rows import JobRows
from tests.support.outside import chat_of
from tests.support.page_actions import THINGS, WORK
from tests.support.route_table import ways

PAGES = "api.dashboard."


def test_every_action_of_a_page_is_done_in_a_browser(rows: JobRows) -> None:
    app = app_of(rows, chat=AgentChat(chat_of(rows.store)))
    actions = {way.name for way in ways(app) if way.module.startswith(PAGES) and way.changes}
    assert actions == WORK | THINGS, "do it in tests/browser, and list it in tests/support/page_actions.py"
    assert not WORK & THINGS, "one of the two files is responsible"
