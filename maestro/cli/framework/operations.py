"""Commands that are generated from operations: list, show, add, edit, remove, and each fixed change such as enable."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Concatenate, TypeVar

from pydantic import BaseModel

from maestro.cli.framework.commands import (
    MOST,
    Commands,
    InputOptions,
    Limit,
    TextCursor,
    keyword,
    load_settings,
)
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import Columns, Lines, Portrait, Result, listing, write
from maestro.domain.fields import read
from maestro.installation.storage import open_existing_store
from maestro.operations.inputs import LIMIT
from maestro.settings import Loaded
from maestro.settings.live import LiveSettings
from maestro.store.store import Store

PAGES = object()
"""The query of a list that has nothing but a limit and a cursor."""
ACTOR = "operator"
"""The author of every change by a command in the audit log."""
Texts = Callable[[Any], Lines] | str
"""A function that returns the lines for a view, or the text that follows the name of the view."""
Operation = TypeVar("Operation", bound=Callable[Concatenate[Any, ...], Result])


@dataclass(frozen=True)
class CommandContext:
    """The settings and the open store; ``live`` includes the changes made while Maestro runs."""

    loaded: Loaded
    store: Store
    live: LiveSettings


@contextlib.contextmanager
def open_context(given: Given) -> Iterator[CommandContext]:
    """Open the store of the data folder, beside a running Maestro; raises ``ConfigurationError`` if there is none."""
    loaded = load_settings(given, accounts=False)
    with contextlib.closing(open_existing_store(loaded.settings)) as store:
        live = LiveSettings(loaded)
        live.refresh(store)
        yield CommandContext(loaded, store, live)


@dataclass(frozen=True)
class Reference:
    """The way in which commands name an item: the field ``key`` of its view, and the argument ``ref``.

    ``new_ref`` is the argument of ``add``. ``read`` returns the arguments for the operations, such as the number of a
    row, and raises ``typer.BadParameter``. ``name`` returns the name of a view, by default the field ``key``.
    """

    key: str = "id"
    ref: Any = str
    new_ref: Any = None
    read: Callable[[str], tuple[Any, ...]] = lambda text: (text,)
    name: Callable[[Any], str] | None = None


class OperationCommands(Commands):
    """The commands for one kind of item; the help lists them in the order in which they are added.

    ``operations`` builds the operations, whose methods ``list``, ``show``, ``add``, ``change`` and ``remove`` the
    generated commands call.
    """

    def __init__(
        self,
        about: str | None,
        operations: Callable[[Any], Any],
        reference: Reference = Reference(),
    ) -> None:
        super().__init__(about)
        self._operations, self._reference = operations, reference

    def operation(self, name: str | None = None) -> Callable[[Operation], Operation]:
        """Register a command: a function that gets the operations and its options, and returns a view and its lines."""

        def add(function: Operation) -> Operation:
            own = list(signature(function).parameters.values())[1:]
            self._register(name or function.__name__, function.__doc__, function, *own)
            return function

        return add

    def list(self, about: str, columns: Columns, empty: str, query: object = None) -> None:
        """Add the command ``list`` for the result of ``query``, for ``PAGES`` with a limit and a cursor, or for all."""

        def run(operations: Any, **options: Any) -> Result:
            if not options and "limit" in signature(operations.list).parameters:
                options["limit"] = MOST
            page = operations.list(**options)
            return page, listing(page, columns, empty)

        paging = [keyword("limit", Limit, LIMIT), keyword("cursor", TextCursor, None)]
        self._register("list", about, run, *(paging if query is PAGES else [keyword("query", query)] if query else []))

    def show(self, about: str, portrait: Portrait) -> None:
        """Add the command ``show``."""
        self.item_command("show", about, lambda operations, *ref: operations.show(*ref), portrait.lines)

    def item_command(self, name: str, about: str, operation: Callable[..., Any], texts: Texts) -> None:
        """Add a command that reads or changes one item."""

        def run(operations: Any, ref: str) -> Result:
            view = operation(operations, *self._reference.read(ref))
            return view, self._lines(view, texts)

        self._register(name, about, run, keyword("ref", self._reference.ref))

    def switch(self, name: str, about: str, texts: Texts, change: BaseModel) -> None:
        """Add a command that always makes the same change, such as ``enable``."""
        self.item_command(name, about, lambda operations, *ref: operations.change(*ref, change, ACTOR), texts)

    def add(self, about: str, new: type[BaseModel], options: InputOptions, texts: Texts) -> None:
        """Add the command ``add``: its argument names the new item, and its options are the other fields."""

        def run(operations: Any, ref: str, options: dict[str, Any]) -> Result:
            view = operations.add(read(new, {self._reference.key: ref, **options}), ACTOR)
            return view, self._lines(view, texts)

        ref = self._reference.new_ref or self._reference.ref
        self._register("add", about, run, keyword("ref", ref), keyword("options", options))

    def edit(self, about: str, change: type[BaseModel], options: InputOptions) -> None:
        """Add the command ``edit``; its options are the fields to change."""

        def run(operations: Any, ref: str, options: dict[str, Any]) -> Result:
            view = operations.change(ref, read(change, options), ACTOR)
            return view, self._lines(view, " is changed")

        self._register("edit", about, run, keyword("ref", self._reference.ref), keyword("options", options))

    def remove(self, about: str, *, by_view: bool = False) -> None:
        """Add the command ``remove``; with ``by_view`` it removes the item by the name in the item's view."""

        def run(operations: Any, ref: str) -> Result:
            names = (getattr(operations.show(ref), self._reference.key),) if by_view else self._reference.read(ref)
            operations.remove(*names, ACTOR)
            return {self._reference.key: "/".join(names)}, f"{'/'.join(names)} is gone"

        self._register("remove", about, run, keyword("ref", self._reference.ref))

    def _lines(self, view: BaseModel, texts: Texts) -> Lines:
        if not isinstance(texts, str):
            return texts(view)
        return f"{self._reference.name(view) if self._reference.name else getattr(view, self._reference.key)}{texts}"

    def _register(self, name: str, about: str | None, run: Callable[..., Result], *parameters: Parameter) -> None:
        def command(given: Given, **options: Any) -> None:
            with open_context(given) as at:
                view, lines = run(self._operations(at), **options)
            write(view, lines, given.as_json)

        command.__doc__ = about
        self.register(name, command, parameters)
