"""Whatever a page can change is done once by a test in a real browser."""

from itertools import chain

from api.parts import AgentChat
from tests.support.api_client import app_of
from tests.support.desk import TESTED
from tests.support.job_rows import JobRows
from tests.support.outside import chat_of
from tests.support.page_actions import REPLAYS, THINGS, WORK
from tests.support.route_table import ways

PAGES = "api.dashboard."


def test_every_action_of_a_page_is_done_in_a_browser(rows: JobRows) -> None:
    app = app_of(rows, chat=AgentChat(chat_of(rows.store)))
    actions = {way.name for way in ways(app) if way.module.startswith(PAGES) and way.changes}
    assert actions == WORK | REPLAYS | THINGS, "do it in tests/browser, and list it in tests/support/page_actions.py"
    assert len(actions) == len(WORK) + len(REPLAYS) + len(THINGS), "one file is responsible for each"


def test_each_action_on_things_is_asked_of_one_test() -> None:
    assert sorted(chain.from_iterable(TESTED)) == sorted(THINGS), "name its page in tests/support/desk.py"
