"""The tools of a process: built in, switched on by configuration, installed, or served elsewhere."""

from maestro.settings import Settings
from maestro.store.store import utc_now
from maestro.tools.ask_question import AskQuestion
from maestro.tools.base import Tool
from maestro.tools.calculate import Calculate
from maestro.tools.get_time import GetTime
from maestro.tools.http_fetch import HttpFetch
from maestro.tools.memory_search import MemorySearch
from maestro.tools.registry import Tools
from maestro.tools.web_search import WebSearch


def build_tools(settings: Settings) -> Tools:
    """Return all tools; which of them an agent may call is the agent's."""
    private = frozenset(settings.tools.private_hosts)
    fixed: list[Tool] = [
        AskQuestion(),
        Calculate(),
        GetTime(utc_now),
        HttpFetch(private),
        MemorySearch(),
        WebSearch(settings.tools.search_url, private),
    ]
    return Tools(fixed, settings.tools.default)
