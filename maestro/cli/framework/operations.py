"""Commands that are generated from the operations on a noun: list, show, add, edit, remove, and every switch."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, TypeVar

from pydantic import BaseModel

from maestro.cli.framework.commands import Commands, configured
from maestro.cli.framework.inputs import MOST, InputOptions, Limit, QueryOptions, TextCursor, keyword
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import Columns, Lines, Portrait, Result, listing, write
from maestro.domain.fields import read
from maestro.installation.storage import open_existing_store
from maestro.operations.inputs import LIMIT
from maestro.settings import Loaded
from maestro.settings.live import LiveSettings
from maestro.store.store import Store

ACTOR = "operator"
"""The author of every change by a command in the audit log."""
Texts = Callable[[Any], Lines] | str
"""A function of the lines about a view, or the text that follows the name of the view in one line."""
Operation = TypeVar("Operation", bound=Callable[Concatenate[Any, ...], Result])


@dataclass(frozen=True)
class Opened:
    """The settings and the open store; ``live`` are the settings with the changes made while Maestro runs."""

    loaded: Loaded
    store: Store
    live: LiveSettings


@contextlib.contextmanager
def opened(given: Given) -> Iterator[Opened]:
    """Open the store of the data folder, beside a running Maestro; raises ``ConfigurationError`` without one."""
    loaded = configured(given, accounts=False)
    with contextlib.closing(open_existing_store(loaded.settings)) as store:
        live = LiveSettings(loaded)
        live.refresh(store)
        yield Opened(loaded, store, live)


@dataclass(frozen=True)
class Reference:
    """How a command names one of a noun: the field ``key`` of its view, and the argument ``ref``.

    ``new_ref`` is the argument of ``add``. ``read`` returns the arguments of the operations, such as the number of a
    row; it raises ``typer.BadParameter``.
    """

    key: str = "id"
    ref: Any = str
    new_ref: Any = None
    read: Callable[[str], tuple[Any, ...]] = lambda text: (text,)


class OperationCommands(Commands):
    """The commands of a noun; they are in the help in the order in which they are added.

    ``operations`` makes the operations on the noun from what ``context`` opens; the generated commands call their
    methods ``list``, ``show``, ``add``, ``change`` and ``remove``.
    """

    def __init__(
        self,
        about: str | None,
        operations: Callable[[Any], Any],
        reference: Reference = Reference(),
        context: Callable[[Given], AbstractContextManager[Any]] = opened,
    ) -> None:
        super().__init__(about)
        self._operations, self._context, self._reference = operations, context, reference

    def operation(self, name: str | None = None) -> Callable[[Operation], Operation]:
        """Make a command of a function that gets the operations and its options, and returns a view and its lines."""

        def add(function: Operation) -> Operation:
            own = list(signature(function).parameters.values())[1:]
            self._add(name or function.__name__, function.__doc__, function, *own)
            return function

        return add

    def list(
        self, about: str, columns: Columns, empty: str, query: QueryOptions | None = None, *, paged: bool = False
    ) -> None:
        """Add ``list``, of what a query finds; neither with a query nor ``paged``, it shows everything."""

        def run(operations: Any, **options: Any) -> Result:
            if not options and "limit" in signature(operations.list).parameters:
                options["limit"] = MOST
            page = operations.list(**options)
            return page, listing(page, columns, empty)

        paging = [keyword("limit", Limit, LIMIT), keyword("cursor", TextCursor, None)]
        self._add("list", about, run, *([keyword("query", query)] if query else paging if paged else []))

    def show(self, about: str, portrait: Portrait) -> None:
        """Add ``show``."""
        self.one("show", about, lambda operations, *ref: operations.show(*ref), portrait.lines)

    def one(self, name: str, about: str, operation: Callable[..., BaseModel], texts: Texts) -> None:
        """Add a command that reads one of the noun, or changes it."""

        def run(operations: Any, ref: str) -> Result:
            view = operation(operations, *self._reference.read(ref))
            return view, self._lines(view, texts)

        self._add(name, about, run, keyword("ref", self._reference.ref))

    def switch(self, name: str, about: str, texts: Texts, change: BaseModel) -> None:
        """Add a command that always makes the same change, such as ``enable``."""
        self.one(name, about, lambda operations, *ref: operations.change(*ref, change, ACTOR), texts)

    def add(self, about: str, new: type[BaseModel], options: InputOptions, texts: Texts) -> None:
        """Add ``add``: the argument names the new one, and the options are its other fields."""

        def run(operations: Any, ref: str, options: dict[str, Any]) -> Result:
            view = operations.add(read(new, {self._reference.key: ref, **options}), ACTOR)
            return view, self._lines(view, texts)

        ref = self._reference.new_ref or self._reference.ref
        self._add("add", about, run, keyword("ref", ref), keyword("options", options))

    def edit(self, about: str, change: type[BaseModel], options: InputOptions) -> None:
        """Add ``edit``: the options are the fields that change."""

        def run(operations: Any, ref: str, options: dict[str, Any]) -> Result:
            view = operations.change(ref, read(change, options), ACTOR)
            return view, self._lines(view, " is changed")

        self._add("edit", about, run, keyword("ref", self._reference.ref), keyword("options", options))

    def remove(self, about: str, *, by_view: bool = False) -> None:
        """Add ``remove``; with ``by_view`` one that has several names is removed by the name in its view."""

        def run(operations: Any, ref: str) -> Result:
            names = (getattr(operations.show(ref), self._reference.key),) if by_view else self._reference.read(ref)
            operations.remove(*names, ACTOR)
            return {self._reference.key: "/".join(names)}, f"{'/'.join(names)} is gone"

        self._add("remove", about, run, keyword("ref", self._reference.ref))

    def _lines(self, view: BaseModel, texts: Texts) -> Lines:
        return f"{getattr(view, self._reference.key)}{texts}" if isinstance(texts, str) else texts(view)

    def _add(self, name: str, about: str | None, run: Callable[..., Result], *parameters: Parameter) -> None:
        def command(given: Given, **options: Any) -> None:
            with self._context(given) as at:
                view, lines = run(self._operations(at), **options)
            write(view, lines, given.as_json)

        command.__doc__ = about
        # Inspect.signature reads it first.
        own = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
        command.__signature__ = Signature([keyword("given", Given), *own])  # type: ignore[attr-defined]
        self.command(name)(command)
