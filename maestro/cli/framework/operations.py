"""Commands that are generated from operations: list, show, add, edit, remove, and each fixed change such as enable."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Concatenate, TypeVar, get_args

from pydantic import BaseModel

from maestro.cli.framework.commands import (
    MOST,
    Commands,
    InputOptions,
    Limit,
    TextCursor,
    keyword_parameter,
    load_settings,
)
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import Columns, Lines, Portrait, Result, list_lines, write_output
from maestro.domain.values import read
from maestro.installation.storage import open_existing_store
from maestro.operations.inputs import LIMIT
from maestro.settings import Loaded
from maestro.settings.live import LiveSettings
from maestro.store.store import Store

PAGES = object()
"""The query of a ``list`` command with only a limit and a cursor."""
ACTOR = "operator"
"""The author that the audit log names for changes by commands."""
OutcomeText = Callable[[Any], Lines] | str
"""A function that returns the lines for a view, or the text that follows the name of the view."""
Operation = TypeVar("Operation", bound=Callable[Concatenate[Any, ...], Result])


@dataclass(frozen=True)
class CommandContext:
    """The settings and the open store of a command; ``live`` includes settings changed while Maestro runs."""

    loaded: Loaded
    store: Store
    live: LiveSettings


@contextlib.contextmanager
def open_context(given: Given) -> Iterator[CommandContext]:
    """Open the store of the data folder beside a running Maestro; raises ``ConfigurationError`` without a store."""
    loaded = load_settings(given, accounts=False)
    with contextlib.closing(open_existing_store(loaded.settings)) as store:
        live = LiveSettings(loaded)
        live.apply_changes(store)
        yield CommandContext(loaded, store, live)


class OperationCommands(Commands):
    """The commands for one kind of item, such as agents; the help lists them in the order of registration.

    ``operations`` returns the object with the methods ``list``, ``show``, ``change`` and ``remove`` that generated
    commands call. ``reference`` annotates the argument that names an item; ``key`` is the field of the item's name in
    its view. A function in an annotation, such as ``row_number``, reads the argument after the store is opened.
    """

    def __init__(
        self, about: str | None, operations: Callable[[Any], Any], reference: object = str, key: str = "id"
    ) -> None:
        super().__init__(about)
        self._operations, self._key = operations, key
        self._reference = keyword_parameter("ref", reference)

    def operation(self, name: str | None = None) -> Callable[[Operation], Operation]:
        """Register a function as a command; it takes the operations and options, and returns a view and its lines."""

        def add(function: Operation) -> Operation:
            own = list(signature(function).parameters.values())[1:]
            self._register(name or function.__name__, function.__doc__, function, *own)
            return function

        return add

    def list(self, about: str, columns: Columns, empty: str, query: object = None) -> None:
        """Add the command ``list`` with the options of ``query``: ``PAGES`` for limit and cursor, None to list all."""

        def run(operations: Any, **options: Any) -> Result:
            if not options and "limit" in signature(operations.list).parameters:
                options["limit"] = MOST
            page = operations.list(**options)
            return page, list_lines(page, columns, empty)

        paging = [keyword_parameter("limit", Limit, LIMIT), keyword_parameter("cursor", TextCursor, None)]
        self._register(
            "list", about, run, *(paging if query is PAGES else [keyword_parameter("query", query)] if query else [])
        )

    def show(self, about: str, portrait: Portrait) -> None:
        """Add the command ``show``, which prints one item in the format ``portrait``."""
        self.item_command("show", about, lambda operations, *names: operations.show(*names), portrait.lines)

    def item_command(self, name: str, about: str, operation: Callable[..., Any], outcome: OutcomeText) -> None:
        """Add a command that calls ``operation`` with one item, and prints ``outcome`` for the view."""

        def run(operations: Any, ref: object) -> Result:
            view = operation(operations, *item_arguments(ref))
            return view, outcome(view) if callable(outcome) else f"{getattr(view, self._key)}{outcome}"

        self._register(name, about, run, self._reference)

    def switch(self, name: str, about: str, outcome: OutcomeText, change: BaseModel) -> None:
        """Add a command that makes one fixed change to an item, such as ``enable``."""
        self.item_command(name, about, lambda operations, *names: operations.change(*names, change, ACTOR), outcome)

    def edit(self, about: str, change: type[BaseModel], options: InputOptions) -> None:
        """Add the command ``edit``; its options are the fields to change."""

        def run(operations: Any, ref: str, options: dict[str, Any]) -> Result:
            view = operations.change(ref, read(change, options), ACTOR)
            return view, f"{getattr(view, self._key)} is changed"

        self._register("edit", about, run, self._reference, keyword_parameter("options", options))

    def remove(self, about: str, *, by_view: bool = False) -> None:
        """Add the command ``remove``; ``by_view`` first looks up the name of an item that was given by another id."""

        def run(operations: Any, ref: Any) -> Result:
            names = item_arguments(getattr(operations.show(ref), self._key) if by_view else ref)
            operations.remove(*names, ACTOR)
            name = "/".join(names)
            return {self._key: name}, f"{name} is gone"

        self._register("remove", about, run, self._reference)

    def _register(self, name: str, about: str | None, run: Callable[..., Result], *parameters: Parameter) -> None:
        def command(given: Given, **options: Any) -> None:
            with open_context(given) as at:
                operations = self._operations(at)
                for parameter in parameters:
                    for read_argument in filter(callable, get_args(parameter.annotation)[1:]):
                        options[parameter.name] = read_argument(options[parameter.name])
                view, lines = run(operations, **options)
            write_output(view, lines, given.as_json)

        command.__doc__ = about
        self.register(name, command, parameters)


def item_arguments(ref: object) -> tuple[Any, ...]:
    """Return the arguments that name an item, such as platform and account; most names have one part."""
    return ref if isinstance(ref, tuple) else (ref,)
