"""What one dashboard of a process has compiled of its templates, the next one uses: each test has one of its own."""

from types import CodeType
from typing import Any

from jinja2 import Environment

_Compile = Any
"""jinja2 types its method for strings and nodes, for source and code."""


def share_compiled_templates() -> None:
    """Let all dashboards of this process compile a template once: it takes longer than the rest of a small test.

    The code of a file depends on its text and on whether everything is escaped, which ours always is.
    """
    compile_anew: _Compile = Environment.compile
    compiled: dict[tuple[str, str], CodeType] = {}

    def compile_once(environment: Environment, source: Any, *where: Any, **options: Any) -> Any:
        name, filename = (*where, None, None)[:2]
        if environment.autoescape is not True or filename is None or options:
            return compile_anew(environment, source, *where, **options)
        key = (filename, source)
        if key not in compiled:
            compiled[key] = compile_anew(environment, source, name, filename)
        return compiled[key]

    Environment.compile = compile_once  # type: ignore[method-assign, assignment]
